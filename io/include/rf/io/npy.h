// NumPy .npy files, format versions 1 to 3, C order only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rf/io/dtype.h"

namespace rf::io {

struct NpyArray {
  DType dtype;  // never kBF16, which the format lacks
  std::vector<int64_t> shape;
  std::vector<std::byte> data;

  // The elements of an integer array (any width, or bool) as int64; throws Error for other types.
  std::vector<int64_t> to_int64(const std::string& where) const;
};

class MappedFile;

// An array in a memory-mapped file.
class MappedNpy {
 public:
  explicit MappedNpy(const std::string& path);
  ~MappedNpy();
  MappedNpy(const MappedNpy&) = delete;
  MappedNpy& operator=(const MappedNpy&) = delete;
  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  std::span<const std::byte> data() const { return data_; }

 private:
  std::unique_ptr<MappedFile> file_;
  DType dtype_{};
  std::vector<int64_t> shape_;
  std::span<const std::byte> data_;
};

NpyArray read_npy(const std::string& path);
// The header of a file with an array of that type and shape. For up to two dimensions its size does not depend on them,
// so it can be overwritten when the number of rows is known. Throws Error, naming the path, for a type that .npy lacks.
std::string npy_header(const std::string& path, DType dtype, const std::vector<int64_t>& shape);
void write_npy(const std::string& path, DType dtype, const std::vector<int64_t>& shape,
               std::span<const std::byte> data);

}  // namespace rf::io
