// Divides work space into arrays, and defines the width of their rows.
#pragma once

#include <cstdint>

namespace rf::core {

// Rows of floats in work space are whole vectors of the widest instruction set.
inline constexpr int64_t kRowFloats = 16;

inline int64_t padded(int64_t columns) { return (columns + kRowFloats - 1) / kRowFloats * kRowFloats; }

// Divides work space into arrays aligned to 64 bytes. Without space it only counts.
class Arena {
 public:
  explicit Arena(void* space) : space_(static_cast<char*>(space)) {}
  template <class T>
  T* take(int64_t count) {
    char* begin = space_ == nullptr ? nullptr : space_ + used_;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return reinterpret_cast<T*>(begin);
  }
  int64_t used() const { return used_; }

 private:
  char* space_;
  int64_t used_ = 0;
};

}  // namespace rf::core
