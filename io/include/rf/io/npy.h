// NumPy .npy files, format versions 1 to 3, C order only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rf/io/dtype.h"

namespace rf::io {

struct NpyArray {
  DType dtype;  // never kBF16, which the format does not have
  std::vector<int64_t> shape;
  std::vector<std::byte> data;

  // The elements of an integer array (any width, or bool) as int64; throws Error for other types.
  std::vector<int64_t> to_int64(const std::string& where) const;
};

NpyArray read_npy(const std::string& path);
void write_npy(const std::string& path, DType dtype, const std::vector<int64_t>& shape,
               std::span<const std::byte> data);

}  // namespace rf::io
