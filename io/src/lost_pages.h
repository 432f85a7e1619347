// Finds the file of a memory page that cannot be read: see report_lost_pages in rf/io/files.h.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace rf::io {

struct MappedPlace;

// Registers a mapped file while it exists, if one of a fixed number of entries is free.
class MappedRange {
 public:
  MappedRange(std::span<const std::byte> bytes, const std::string& path);
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

 private:
  MappedPlace* place_ = nullptr;
  std::string message_;
};

}  // namespace rf::io
