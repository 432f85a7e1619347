// The layers after the hidden states: a model's heads (spec R-HF-09..13), and poolings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layers.h"
#include "rf/engine/model.h"
#include "rf/model/config.h"
#include "weights.h"

namespace rf::engine {

// Rows of activations and memory for what a head computes from them; all sizes in rows.
class HeadLayers {
 public:
  HeadLayers() = default;
  // prefix: of the encoder's names.
  HeadLayers(const ModelConfig& config, Head head, const Weights& weights, const std::string& prefix,
             Precision precision);

  // The head of a language model with the single layer `last`, which reads hidden states.
  HeadLayers(Linear last, Precision precision);

  bool has_pooler() const { return !pooler_.empty(); }

  // Kept from call to call.
  struct Memory {
    std::vector<std::byte> read, result;
  };
  // tanh(dense(x)), or dense(x) in a prefix language model, of rows with stride x_stride: y [rows, hidden_size].
  void pool(int64_t rows, const void* x, int64_t x_stride, float* y, Memory& memory) const;
  // Logits of rows with stride x_stride, [rows, logits()]. Heads of sequences get the rows of their tokens.
  void operator()(int64_t rows, const void* x, int64_t x_stride, float* y, Memory& memory) const;
  int64_t logits() const;

 private:
  struct Stage {
    Linear product;
    std::optional<Activation> activation;
    Norm norm;
  };

  Precision precision_ = Precision::kFloat32;
  std::optional<Activation> pooler_activation_ = Activation::kTanh;  // in pool()
  int64_t hidden_ = 0;
  double logit_scale_ = 1, logit_cap_ = 0;  // of HeadSpec
  bool starts_with_pooler_ = false;
  Linear pooler_, last_;
  std::vector<Stage> stages_;  // before the last layer, besides the pooler
};

// x: [tokens, width]; attend: [tokens] or nullptr; out: [width]. Not for Pooling::kPooler. Sums are in double, in order
// of the tokens. A sequence without a token that is attended to gives zeros, or its first token with kCls and kLast.
void pool_sequence(Pooling pooling, rf_dtype dtype, const void* x, int64_t tokens, int64_t width, const uint8_t* attend,
                   float* out);

// The parts of a Model, for classes that compute with them in another way.
class Encoder;
struct LoadedModel {
  const Encoder& encoder;
  const HeadLayers& head;
};

}  // namespace rf::engine
