// A small model and batch for the tests of nn. Weights are moved by N(0, 0.3), so that attention is not uniform.
#pragma once

#include <ATen/ATen.h>

#include <memory>

#include "rf/nn/model.h"

namespace rf::nn {

inline ModelConfig small_config() {
  ModelConfig config;
  config.vocab_size = 37;
  config.hidden_size = 24;
  config.embedding_size = 16;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 20;
  config.max_position_embeddings = 16;
  config.type_vocab_size = 3;
  config.num_labels = 4;
  return config;
}

inline std::shared_ptr<Model> small_model(const ModelConfig& config, Head head = Head::kMaskedLm) {
  const at::NoGradGuard no_grad;
  at::manual_seed(7);
  auto model = std::make_shared<Model>(config, head);
  for (at::Tensor& parameter : model->parameters()) parameter.add_(at::randn_like(parameter), 0.3);
  model->eval();
  return model;
}

// Token ids [batch, tokens], none of them 0.
inline at::Tensor small_ids(int64_t batch, int64_t tokens) {
  return at::arange(batch * tokens, at::kLong).mul_(5).remainder_(36).add_(1).view({batch, tokens});
}

inline Input input_of(const at::Tensor& ids_BT) {
  Input input;
  input.ids_BT = ids_BT;
  return input;
}

}  // namespace rf::nn
