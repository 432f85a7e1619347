// Work space of a thread. It is kept from one use to the next, so that a repeated call allocates nothing, as long as
// the threads of the process together keep no more than kMaxIdleBytes.
#pragma once

#include <cstdint>

namespace rf::core {

inline constexpr int64_t kMaxIdleBytes = int64_t{64} << 20;

// At least `bytes` bytes aligned to 64 while it exists. A thread has one at a time, and must also destroy it.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) noexcept;
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // nullptr if allocation failed.
  void* get() const { return memory_; }

 private:
  void* memory_;
};

// The bytes of all threads, in use or not.
int64_t scratch_bytes() noexcept;
// Frees unused space.
void release_scratch() noexcept;

}  // namespace rf::core
