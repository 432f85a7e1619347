// The weights of a model directory for the engine: found by the list of model/weights.h, checked, and read as float32.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layers.h"
#include "memory.h"
#include "rf/model/checkpoint_files.h"
#include "rf/model/config.h"
#include "rf/model/position_terms.h"
#include "rf/model/translation_files.h"

namespace rf::engine {

// The elements of a tensor as float32: the file's memory if it stores float32, else a copy. The destructor returns the
// tensor's pages to the system, so that packed weights do not take memory twice.
class TensorFloats {
 public:
  // files: whose tensor `view` is. Throws Error for elements that are not floats, NaN and infinity, and values that are
  // not in float32's range.
  TensorFloats(std::shared_ptr<const CheckpointFiles> files, const io::TensorView& view);
  ~TensorFloats();
  TensorFloats(const TensorFloats&) = delete;
  TensorFloats& operator=(const TensorFloats&) = delete;
  const float* get() const { return data_; }
  int64_t size() const { return size_; }

 private:
  std::shared_ptr<const CheckpointFiles> files_;
  const io::TensorView& view_;
  Floats copy_;
  const float* data_;
  int64_t size_;
};

// Rows of a matrix in a file, read on demand.
class MappedRows {
 public:
  MappedRows() = default;
  MappedRows(std::shared_ptr<const CheckpointFiles> files, const io::TensorView& view);
  bool empty() const { return view_ == nullptr; }
  int64_t rows() const { return view_->shape[0]; }
  int64_t width() const { return view_->shape[1]; }
  // to[i] += row[i]
  void add_row(int64_t row, float* to) const;
  void read_row(int64_t row, float* to) const {
    std::fill_n(to, width(), 0.0F);
    add_row(row, to);
  }

 private:
  std::shared_ptr<const CheckpointFiles> files_;
  const io::TensorView* view_ = nullptr;
};

class Weights {
 public:
  // Throws Error for missing and unexpected tensors, and wrong shapes. A bare encoder (Head::kNone) of the family bert
  // may lack its pooler. Of the tied tensors (rf/model/checkpoint_files.h) has() is true for what the file has of its
  // own.
  Weights(const std::string& model_dir, const ModelConfig& config, Head head,
          const std::function<void(const std::string&)>& warn);
  // A side of an encoder-decoder, whose tensors translation_tensors() has checked.
  Weights(std::shared_ptr<const CheckpointFiles> files, const TranslationConfig& config, TranslationSide side);

  // The file of position terms, and the hash that it must have.
  std::string terms_file() const { return side_ ? side_terms_file(*side_) : kPositionTermsFile; }
  std::string terms_hash(const ModelConfig& config) const {
    return position_terms_hash(config, side_ ? tensors_ : files_->tensors());
  }
  bool has(const std::string& name) const { return find(name) != nullptr; }
  // The tensor of a name of model/weights.h, or of one that an encoding adds.
  const io::TensorView& view(const std::string& name) const;
  // Its elements, checked.
  TensorFloats floats(const std::string& name) const { return {files_, view(name)}; }
  std::vector<float> vector(const std::string& name) const;
  void read(const std::string& name, float* to) const;
  MappedRows rows(const std::string& name) const;

 private:
  const io::TensorView* find(const std::string& name) const;

  std::shared_ptr<const CheckpointFiles> files_;
  TensorMap tensors_;  // by their names in the model
  std::optional<TranslationSide> side_;
};

// All elements of a tensor. Throws Error as TensorFloats does.
std::vector<float> finite_elements(const io::TensorView& view);
// Elements begin .. begin + count - 1 of a tensor of floats.
void read_elements(const io::TensorView& view, int64_t begin, int64_t count, float* to);

// Layers from the weights `name`.weight and `name`.bias. Linear layers of RoFormerV2 lack the bias, its norms lack
// both.
template <class Source>
std::vector<float> read_bias(const Source& weights, const std::string& name) {
  return weights.has(name + ".bias") ? weights.vector(name + ".bias") : std::vector<float>();
}

// largest_inputs: as Linear has them.
inline Linear read_linear(const Weights& weights, const std::string& name, Precision precision,
                          const std::vector<float>& largest_inputs = {}) {
  const std::vector<int64_t>& shape = weights.view(name + ".weight").shape;
  return Linear(precision, shape[1], shape[0], weights.floats(name + ".weight").get(), read_bias(weights, name),
                largest_inputs);
}

// One product of several matrices with one input, [sum of outs, in]. Source: Weights or DecoderWeights.
template <class Source>
Linear read_joined(const Source& weights, const std::vector<std::string>& names, int64_t in,
                   const std::vector<int64_t>& outs, Precision precision,
                   const std::vector<float>& largest_inputs = {}) {
  const int64_t rows = std::accumulate(outs.begin(), outs.end(), int64_t{0});
  const Floats all = make_floats(rows * in);
  std::vector<float> bias;
  float* to = all.get();
  for (size_t i = 0; i < names.size(); to += outs[i++] * in) {
    weights.read(names[i] + ".weight", to);
    const std::vector<float> added = read_bias(weights, names[i]);
    bias.insert(bias.end(), added.begin(), added.end());
  }
  return Linear(precision, in, rows, all.get(), std::move(bias), largest_inputs);
}

inline Norm read_norm(const Weights& weights, const std::string& name, const ModelConfig& config, int64_t columns) {
  Norm norm{.kind = config.norm_kind(), .columns = columns, .gain = {}, .bias = {}, .eps = config.layer_norm_eps};
  if (norm.kind == NormKind::kRms) return norm;
  norm.gain = weights.vector(name + ".weight");
  norm.bias = weights.vector(name + ".bias");
  return norm;
}

}  // namespace rf::engine
