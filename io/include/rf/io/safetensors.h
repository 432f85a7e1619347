// safetensors files: u64 little-endian header length n, n bytes of JSON, raw little-endian data (R-HF-01).
// A reader maps the file and checks every rule of the format before it hands out a view: header length within the file
// and at most 100 MB, JSON without duplicate keys, known dtypes, shapes whose product times the element size equals the
// extent, extents in order without overlap or hole that cover the data exactly, no arithmetic overflow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rf/io/dtype.h"

namespace rf::io {

class MappedFile;

inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the limit of the format's own library

struct TensorView {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // row-major, little-endian; valid while the SafetensorsFile lives
};

class SafetensorsFile {
 public:
  // Throws Error with the path, the rule and the offending value. A shape has at most 64 dimensions.
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::vector<TensorView>& tensors() const { return tensors_; }  // in file order
  const TensorView* find(const std::string& name) const;               // nullptr when absent
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::unique_ptr<MappedFile> file_;
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

// Writes to a temporary name, syncs and renames: after a failure (a full disk) the old file is untouched. The header is
// padded with spaces so that the data start at a multiple of 8. Tensors are written in the order given, but wider
// elements first (each tensor is aligned to its element).
void write_safetensors(const std::string& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace rf::io
