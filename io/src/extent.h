// Bytes of a tensor, computed without overflow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "rf/io/dtype.h"

namespace rf::io {

constexpr size_t kMaxRank = 64;  // NumPy's limit

// Product of the dimensions times the element size. Empty if a dimension is negative, the rank is above kMaxRank, or
// the product of the dimensions other than 0 does not fit int64: strides of an empty tensor must not overflow either.
inline std::optional<int64_t> extent_bytes(const std::vector<int64_t>& shape, DType dtype) {
  if (shape.size() > kMaxRank) return std::nullopt;
  int64_t bytes = static_cast<int64_t>(size_of(dtype));
  bool empty = false;
  for (const int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, dim, &bytes)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : bytes;
}

}  // namespace rf::io
