// The weights of a rotary decoder (rf/model/rotary_decoder.h), by the names of a GGUF file, out of either format.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "layers.h"
#include "rf/io/gguf.h"
#include "rf/model/checkpoint_files.h"
#include "rf/model/rotary_decoder.h"

namespace rf::engine {

// A matrix whose rows are read on demand: writes row `row` to `to`.
using ReadRow = std::function<void(int64_t row, float* to)>;

class DecoderWeights {
 public:
  // path: a model directory, or a GGUF file. Throws Error for missing and unexpected tensors, wrong shapes, and types
  // that are not read.
  explicit DecoderWeights(const std::string& path);

  const DecoderConfig& config() const { return config_; }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  // All elements, to `to`. Throws Error for NaN and infinity. Pages of the file are given back.
  void read(const std::string& name, float* to) const;
  std::vector<float> vector(const std::string& name) const;
  // The rows of a matrix, checked.
  ReadRow rows(const std::string& name) const;

 private:
  struct Tensor {
    std::vector<int64_t> shape;
    const io::TensorView* view = nullptr;       // one of them
    const io::GgufTensor* quantised = nullptr;  // of gguf_
  };
  void open_directory(const std::string& model_dir);
  void untie_stored_head();
  void open_gguf(const std::string& path);
  void add(const DecoderTensor& wanted, Tensor found);
  const Tensor& at(const std::string& name) const;

  DecoderConfig config_;
  std::shared_ptr<const CheckpointFiles> files_;
  std::shared_ptr<const io::GgufFile> gguf_;
  std::map<std::string, Tensor> tensors_;
};

Norm read_norm(const DecoderWeights& weights, const std::string& name);
// largest: measured, for int8; else empty.
Block read_block(const DecoderWeights& weights, int64_t layer, Precision precision, const LayerInputs& largest);
// Logits of the last hidden states.
Linear read_decoder_head(const DecoderWeights& weights, Precision precision);

}  // namespace rf::engine
