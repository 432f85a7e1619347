// RoFormer (spec §7): a post-LN BERT encoder whose queries and keys are rotated by position, and the heads transformers
// has for it. One class for all heads; the head is a value of the configuration.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rf/model/config.h"

namespace rf::nn {

// Where dropout draws come from: (seed, step, call number within the step), spec of core/include/rf/dropout.h.
struct DropoutKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t calls = 0;  // counts the dropout sites of one forward pass; reset to 0 for each
  int64_t next_stream() { return static_cast<int64_t>(step << 16 | calls++); }
};

struct Input {
  at::Tensor ids_BT;        // int64, 0 <= id < vocab_size (checked: Error with the offending id and its place)
  at::Tensor mask_BT;       // optional; any integer or bool type, non-zero: may be attended to
  at::Tensor types_BT;      // optional, int64; default 0
  at::Tensor segments_BT;   // optional, int32; tokens attend within equal values >= 0; -1 is padding. Excludes mask_BT
  at::Tensor positions_BT;  // optional, int64 [T] or [B,T]; default 0..T-1
};

// Fields that a head does not give are undefined tensors.
struct Output {
  at::Tensor hidden_BTC;   // last hidden state
  at::Tensor logits;       // MaskedLm/CausalLm [B,T,V]; classification [B,num_labels]; choice [B/choices, choices];
                           // token classification [B,T,num_labels]
  at::Tensor start_logits_BT, end_logits_BT;  // question answering
};

class RoFormer : public torch::nn::Module {
 public:
  // Initialised as R-HF-14 with torch's default generator. Parameters carry the names of model/weights.h.
  RoFormer(const RoFormerConfig& config, Head head);

  const RoFormerConfig& config() const;
  Head head() const;

  at::Tensor encode(const Input& input);  // [B,T,C]
  // num_choices: only for Head::kMultipleChoice, whose input is [B*choices, T].
  Output forward(const Input& input, int64_t num_choices = 1);
  // Logits [N,V] of the masked-LM head at chosen hidden states [N,C] only.
  at::Tensor masked_lm_logits(const at::Tensor& hidden_NC);

  // Draws for dropout in training mode; set before each forward pass.
  void set_dropout_key(DropoutKey key);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Model directories. `dtype` of the parameters in memory: kFloat or kDouble.
std::shared_ptr<RoFormer> load_model(const std::string& model_dir, std::optional<Head> head, at::ScalarType dtype);
// model.safetensors (float32, metadata format=pt) and config.json with `architectures`, as transformers reads them.
void save_model(const RoFormer& model, const std::string& model_dir);

}  // namespace rf::nn
