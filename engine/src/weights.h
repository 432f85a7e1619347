// The weights of a model directory for the engine: found by the list of model/weights.h, checked, and read as float32.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "elements.h"
#include "rf/model/checkpoint_files.h"
#include "rf/model/config.h"

namespace rf::engine {

// Rows of a matrix in a file, read when they are asked for.
class MappedRows {
 public:
  MappedRows() = default;
  MappedRows(std::shared_ptr<const CheckpointFiles> files, const io::TensorView& view);
  bool empty() const { return view_ == nullptr; }
  int64_t rows() const { return view_->shape[0]; }
  int64_t width() const { return view_->shape[1]; }
  // to[i] += row[i]
  void add_row(int64_t row, float* to) const;

 private:
  std::shared_ptr<const CheckpointFiles> files_;
  const io::TensorView* view_ = nullptr;
};

class Weights {
 public:
  // Throws Error for missing and unexpected tensors, wrong shapes, tied copies with other values, and types that are
  // not floats. A bare encoder (Head::kNone) of the family bert may lack its pooler.
  Weights(const std::string& model_dir, const ModelConfig& config, Head head);

  const CheckpointFiles& files() const { return *files_; }
  bool has(const std::string& name) const { return find(name) != nullptr; }
  // The tensor of a name of model/weights.h, or of one that an encoding adds.
  const io::TensorView& view(const std::string& name) const;
  // Its elements. Throws Error for NaN and infinity, and for values that are not in float32's range.
  Floats floats(const std::string& name) const;
  std::vector<float> vector(const std::string& name) const;
  MappedRows rows(const std::string& name) const;  // checked in the same way

 private:
  const io::TensorView* find(const std::string& name) const;

  std::shared_ptr<const CheckpointFiles> files_;
  std::map<std::string, std::string> names_;  // in the model -> in the file
};

// Elements begin .. begin + count - 1 of a tensor of floats.
void read_elements(const io::TensorView& view, int64_t begin, int64_t count, float* to);

}  // namespace rf::engine
