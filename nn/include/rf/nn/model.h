// RoFormer (spec §7): a post-LN BERT encoder whose queries and keys are rotated by position, and the heads transformers
// has for it. One class for all heads; the head is a value of the configuration. There is no key/value cache, and the
// cross-attention weights of a decoder are loaded and saved but not used: Input has no encoder states.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rf/model/config.h"
#include "rf/model/weights.h"
#include "rf/nn/dropout_key.h"

namespace rf::nn {

// Everything is checked; an Error names the rule, the value and its row and column. A query that may attend to no key
// (a padding token, a row of zeros in the mask) has attention output 0 and gradient 0.
struct Input {
  at::Tensor ids_BT;        // int64, 0 <= id < vocab_size; T > 0, B may be 0
  at::Tensor mask_BT;       // optional; any integer, bool or floating type, non-zero: may be attended to
  at::Tensor types_BT;      // optional, int64, 0 <= type < type_vocab_size; default 0
  at::Tensor segments_BT;   // optional, int32; tokens attend within equal values >= 0; -1 is padding. Excludes mask_BT
  at::Tensor positions_BT;  // optional, int64 [T] or [B,T], >= 0; default 0..T-1
};

// Fields that a head does not give are undefined tensors.
struct Output {
  at::Tensor hidden_BTC;  // last hidden state
  at::Tensor logits;      // MaskedLm/CausalLm [B,T,V]; classification [B,num_labels]; choice [B/choices, choices];
                          // token classification [B,T,num_labels]
  at::Tensor start_logits_BT, end_logits_BT;  // question answering
};

class Model : public torch::nn::Module {
 public:
  // Initialised as R-HF-14 with torch's default generator. Parameters carry the names of model/weights.h. The attention
  // is causal when config.is_decoder, whatever the head.
  Model(const ModelConfig& config, Head head);

  const ModelConfig& config() const;
  Head head() const;

  at::Tensor encode(const Input& input);  // [B,T,C]
  // num_choices: only for Head::kMultipleChoice, whose input is [B*choices, T].
  Output forward(const Input& input, int64_t num_choices = 1);
  // Logits [N,V] of the masked-LM or causal-LM head at chosen hidden states [N,C] (or [B,T,C]) only.
  at::Tensor masked_lm_logits(const at::Tensor& hidden_NC);

  // Draws for dropout in training mode; set before each forward pass.
  void set_dropout_key(DropoutKey key);

  // A checkpoint's own sin|cos table (encoder.embed_positions.weight, [rows, head_dim]) where it is not the computed
  // one: it is then used, as transformers does, through plain torch operations instead of the rope operator, and a
  // position beyond its rows is an Error. Undefined (the default): angles are computed for any position.
  void set_position_table(const at::Tensor& table_MD);
  at::Tensor position_table() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Model directories: config.json and model.safetensors, or its shards with model.safetensors.index.json. `head` absent:
// the one that config.json names. `dtype` of the parameters in memory: kFloat or kDouble, from F16, BF16, F32 or F64
// files. The stored position table is compared with the computed one; beyond 1e-6 a warning goes to stderr and the
// stored one is used. The model is in evaluation mode. FreshHead::kAllowed: a head that the file lacks keeps its random
// initialisation. Errors: a missing file, a missing or unexpected tensor, a shape (both are told), NaN or infinity
// (with its index), a tied copy that differs from its source.
std::shared_ptr<Model> load_model(const std::string& model_dir, std::optional<Head> head, at::ScalarType dtype,
                                  FreshHead fresh_head = FreshHead::kForbidden);
// model.safetensors (float32, metadata format=pt) and config.json with `architectures`, as transformers reads them.
// The directory is made when missing.
void save_model(const Model& model, const std::string& model_dir);

}  // namespace rf::nn
