// An encoder-decoder for translation (Vaswani et al. 2017): two bodies (src/body.h) that share one embedding, which is
// also the output layer. Both self-attentions use the position encoding of the configuration; cross-attention does not
// use one (R-ROPE-14). rf/model/translation_config.h has the configuration and the names of the weights.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rf/model/translation_config.h"
#include "rf/nn/attention.h"
#include "rf/nn/encoding.h"

namespace rf::nn {

// Padding is at the right.
struct TranslationInput {
  at::Tensor source_BS;                        // int64, 0 <= id < vocab_size
  at::Tensor source_mask_BS;                   // optional; bool, or integers 0 and 1: true or 1 is a token
  at::Tensor target_BT;                        // int64, input of the decoder: begins with decoder_start_token_id
  std::optional<DropoutKey> dropout_key = {};  // required in training mode
};

class TranslationModel : public torch::nn::Module {
 public:
  // Drawn from torch's default generator: embeddings N(0, 1/d_model), with a row of zeros for padding; matrices uniform
  // with the variance of Glorot and Bengio 2010; the position encodings last. Throws Error for an unsuitable encoding,
  // for example one that needs causal attention in the encoder.
  explicit TranslationModel(const ModelConfig& config);

  const ModelConfig& config() const;
  // The weights of model/translation_config.h, then the position encodings' under "position_encoding.encoder." and
  // "position_encoding.decoder.".
  const std::vector<WeightSpec>& weight_specs() const;
  // Throws Error if a row of that many tokens is longer than a table of positions.
  void check_length(int64_t tokens) const;
  // For one side, the same as Model's members with these names.
  const ModelConfig& config_of(TranslationSide side) const;
  const Encoding& position_encoding(TranslationSide side) const;
  std::vector<ops::Terms> position_terms(TranslationSide side, int64_t tokens) const;

  // Last hidden states of the decoder, [B,T,C].
  at::Tensor forward(const TranslationInput& input);
  // Logits over the vocabulary, [N,V] or [B,T,V].
  at::Tensor logits(const at::Tensor& hidden_NC);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Model directories: config.json and model.safetensors. Reads directories of transformers' MarianMTModel, in which all
// embeddings share one matrix. dtype: kFloat or kDouble. The model is in evaluation mode. Throws Error as load_model()
// does.
std::shared_ptr<TranslationModel> load_translation_model(const std::string& model_dir, at::ScalarType dtype);
// Writes float32, and position terms (rf/nn/position_terms.h). A missing directory is created.
void save_translation_model(const TranslationModel& model, const std::string& model_dir);

}  // namespace rf::nn
