// The memory of unfinished requests, which --max-memory bounds (docs/server.md#memory).
#pragma once

#include <fmt/format.h>
#include <malloc.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "http.h"

namespace rf::server {

class Memory {
 public:
  explicit Memory(int64_t most) : most_(most) {}
  std::string rule() const {
    return fmt::format("bodies and results of all requests must fit into {} bytes, got more", most_);
  }

  // The bytes that a request, or a part of a request, holds until it ends.
  class Share {
   public:
    explicit Share(Memory& memory) : memory_(&memory) {}
    Share(Share&& other) noexcept : memory_(other.memory_), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&&) = delete;
    ~Share() {
      memory_->return_freed(bytes_);
      memory_->used_ -= bytes_;
    }

    // So many bytes more. Throws HttpError: 413 if the share alone is too large, else 429, because others will end.
    void take(int64_t bytes) {
      if (fits_after(bytes)) return;
      throw HttpError(bytes_ > memory_->most_ ? http::status::payload_too_large : http::status::too_many_requests,
                      memory_->rule());
    }
    // Takes them in any case; false: they are too many.
    bool fits_after(int64_t bytes) {
      bytes_ += bytes;
      return (memory_->used_ += bytes) <= memory_->most_;
    }

   private:
    Memory* memory_;
    int64_t bytes_ = 0;
  };

 private:
  // Freed bytes stay in the process, for the thread that had them, until malloc_trim() gives them back to the system.
  void return_freed(int64_t bytes) {
    constexpr int64_t kPart = 16;
    if ((freed_ += bytes) < most_ / kPart) return;
    freed_ = 0;
    malloc_trim(0);
  }

  const int64_t most_;
  std::atomic<int64_t> used_ = 0;
  std::atomic<int64_t> freed_ = 0;  // since the last malloc_trim()
};

}  // namespace rf::server
