// The encoder (R-HF-04, R-HF-05): a BERT with a configurable position encoding and attention.
//
//   x_0 = LN(word + type + encoding.input(positions))          projected where embedding_size differs; or
//   x_0 = scale * word + encoding.input(positions)             without embedding_norm, as Vaswani et al. 2017
//   section 3.4;
//                                                              word: as encoding.words() changes it
//   h   = LN(x + W_o attention(W_q y, W_k y, W_v y; encoding.terms(layer))), y = x + encoding.layer_input(layer)
//   h   = LN(h + W_o' attention(W_q' h, W_k' e, W_v' e))       with cross-attention to encoder states e: no position
//   x'  = LN(h + W_2 act(W_1 h))                               terms and no rotation (R-ROPE-14)
//
// Gated networks have W_2 (act(W_g h) * W_1 h). With pre_norm, h = x + W_o attention(.. LN(x) ..) and
// x' = h + W_2 act(W_1 LN(h)), and the last x' is normed. Layers may differ in their windows and rotations.
//
// LN is a layer norm or an RMS norm; the linear layers of RoFormerV2 omit biases (R-VAR-05). Dropout is
// applied to the embeddings (in RoFormerV2 before their norm) and to each summand added to x or h. Attention is softmax
// or linear. The body uses terms, never the name of an encoding.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "layers.h"
#include "rf/nn/attention.h"
#include "rf/nn/encoding.h"
#include "rf/nn/linear_attention.h"
#include "rf/nn/model.h"
#include "tokens.h"

namespace rf::nn {

class Body {
 public:
  Body() = default;
  // prefix: of the encoder's names in `parameters`.
  Body(const ModelConfig& config, const Parameters& parameters, const std::string& prefix);

  void set_encoding(std::shared_ptr<Encoding> encoding) { encoding_ = std::move(encoding); }
  const Encoding& encoding() const { return *encoding_; }
  // For an encoding whose scales_scores() is false: re-initialises the query and key projections of self-attention,
  // drawn with `deviation`, as the authors of T5 do (mesh_tensorflow; T5PreTrainedModel._init_weights of transformers).
  // Nothing else changes.
  void fit_scores(double deviation);
  // One per layer, in place of softmax attention.
  void set_linear_attention(std::vector<std::shared_ptr<LinearAttention>> layers) { linear_ = std::move(layers); }

  // The terms of a layer; some encodings multiply their tables by the layer's projections. token_numbers: computed by
  // the encoding from the layer's input for all keys; undefined for encodings that use positions only.
  Terms terms(int64_t layer, const Shared& shared, const at::Tensor& token_numbers_BSN,
              const at::Tensor& query_BTHD = {}, const at::Tensor& key_BSHD = {}) const;

  // The terms of all layers for a sequence of so many tokens, on the CPU.
  std::vector<Terms> position_terms(int64_t tokens) const;

  // The dtype of queries, keys and values: the weights' dtype, or autocast's.
  at::ScalarType dtype() const;

  // [B,T,C]. The input must have been checked.
  at::Tensor encode(const Input& input, const Dropout& drop) const;

 private:
  struct AttentionLayer {
    Linear query, key, value, output;
    Norm norm;
  };
  struct Layer {
    AttentionLayer self, cross;  // cross undefined without add_cross_attention
    Linear gate;                 // undefined without config.block.gated
    Linear intermediate, output;
    Norm output_norm;
  };
  struct Pass;  // shared by the layers of one forward pass

  static AttentionLayer attention_layer(const Parameters& parameters, const std::string& name);
  at::Tensor embed(const Input& input, const TokenPositions& positions, const Dropout& drop) const;
  at::Tensor layer_forward(int64_t index, const at::Tensor& hidden_BTC, const Pass& pass) const;
  at::Tensor self_attention(int64_t index, const at::Tensor& hidden_BTC, const Pass& pass) const;
  at::Tensor feed_forward(const Layer& layer, const at::Tensor& hidden_BTC) const;
  int64_t window(int64_t index) const {
    return config_.layers.empty() ? 0 : config_.layers[static_cast<size_t>(index)].window;
  }
  double probabilities_dropout(const Pass& pass) const;
  at::Tensor cross_attention(int64_t index, const at::Tensor& hidden_BTC, const Pass& pass) const;

  ModelConfig config_;
  std::shared_ptr<Encoding> encoding_;
  std::vector<std::shared_ptr<LinearAttention>> linear_;  // empty: softmax
  Parameter word_embeddings_, type_embeddings_;           // type: undefined without token types
  Parameter task_embeddings_;                             // undefined without types of tasks; the first is added
  Norm embeddings_norm_, final_norm_;
  Linear embeddings_project_;  // undefined when embedding_size == hidden_size
  const Layer& layer(int64_t index) const { return layers_[config_.block.shared ? 0 : static_cast<size_t>(index)]; }
  std::vector<Layer> layers_;  // one, if all layers share it
};

}  // namespace rf::nn
