// An encoder with any position encoding and either attention (R-VAR-03), norms after or before the sums, and the heads
// of RoFormer, BERT and the encoders of other libraries in transformers. One class serves all: encoding, attention,
// family and head are values of the configuration, so BERT (learned positions), NEZHA, a T5- or DeBERTa-style encoder,
// RoFormer and Performer are configurations; with is_decoder attention is causal, as in GPT. Caches of keys and values
// are Python's and the engine's.
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
#include "rf/nn/attention.h"
#include "rf/ops/terms.h"

namespace rf::nn {

class Encoding;
class LinearAttention;
class TranslationModel;

// All inputs are checked; an Error names the rule, the value and its row and column. A query without allowed keys (a
// padding token, a row of zeros in the mask) has attention output 0 and gradient 0.
struct Input {
  at::Tensor ids_BT;    // int64, 0 <= id < vocab_size; T > 0, B may be 0
  at::Tensor mask_BT;   // optional; bool, or integers 0 and 1: true or 1 may be attended to
  at::Tensor types_BT;  // optional, int64, 0 <= type < type_vocab_size; default 0; models without types ignore it. In a
                        // prefix language model the tokens before the first of another type are the prefix
  at::Tensor sequence_ids_BT;  // optional, int32, in place of mask_BT: tokens attend within equal values >= 0; -1 is
                               // padding
  at::Tensor positions_BT;     // optional, int64 [T], [B,T] or, on several axes, [1 or B,T,axes], >= 0; default 0..T-1
  at::Tensor real_positions_BT = {};  // optional, float64 [B,T], instead of positions_BT
  // With add_cross_attention: the states to attend to, [B,S,C], and their mask (like mask_BT).
  at::Tensor encoder_hidden_BSC, encoder_mask_BS;
  // The key of dropout's draws in training mode. Absent: each forward pass draws a seed from torch's default generator,
  // so passes have different masks, which torch.manual_seed and a restored generator repeat.
  std::optional<DropoutKey> dropout_key;
};

// Fields that a head does not compute are undefined tensors.
struct Output {
  at::Tensor hidden_BTC;  // last hidden state
  at::Tensor pooled_BC;   // family bert: bare model, sequence classification, multiple choice; prefix language models:
                          // bare model and causal language model
  at::Tensor logits;      // MaskedLm/CausalLm/PreTraining [B,T,V]; classification [B,num_labels]; choice [B/choices,
                          // choices]; token classification [B,T,num_labels]
  at::Tensor start_logits_BT, end_logits_BT;  // question answering
};

class Model : public torch::nn::Module {
 public:
  // Initialised as R-HF-14 with torch's default generator, the position encoding last: with one seed, models that only
  // differ in it have equal bodies. Parameters carry the names of weight_specs(). The attention is causal when
  // config.is_decoder, whatever the head. Throws Error for an encoding or attention that the configuration does not
  // fit.
  Model(const ModelConfig& config, Head head);
  // The same with an encoding and layers of linear attention (none: softmax) created for `config`; nullptr: both are
  // created here, after the body.
  Model(const ModelConfig& config, Head head, std::shared_ptr<Encoding> encoding,
        std::vector<std::shared_ptr<LinearAttention>> linear);

  const ModelConfig& config() const;
  Head head() const;

  // Every tensor of a checkpoint: the tensors of model/weights.h, then the position encoding's under
  // "position_encoding.".
  const std::vector<WeightSpec>& weight_specs() const;

  // Throws the position encoding's Error, like encode(), if a row of that many tokens (>= 1) is too long for it; the
  // cost does not grow with the length.
  void check_length(int64_t tokens) const;
  // The terms of every layer for the positions 0..tokens-1, float32, on the CPU and without gradients; throws as
  // check_length().
  std::vector<ops::Terms> position_terms(int64_t tokens) const;
  const Encoding& position_encoding() const;
  at::Tensor encode(const Input& given);  // [B,T,C]
  // num_choices: only for Head::kMultipleChoice, whose input is [B*choices, T].
  Output forward(const Input& given, int64_t num_choices = 1);
  // The pooler's vectors [B,C] of hidden states; see Output.
  at::Tensor pooled(const at::Tensor& hidden_BTC);
  // Logits [N,V] of the masked-LM or causal-LM head at chosen hidden states [N,C] (or [B,T,C]) only.
  at::Tensor masked_lm_logits(const at::Tensor& hidden_NC);
  // Head::kPreTraining: logits [N,2] of pairs, of the hidden states [N,C] of their [CLS]:
  // seq_relationship(tanh(pooler(hidden))).
  at::Tensor pair_logits(const at::Tensor& first_NC);

  // The sin|cos table of a checkpoint (encoder.embed_positions.weight, [rows, head_dim]) if it differs from the
  // computed table: it is then used, as in transformers, and a position beyond its rows is an Error. Undefined (the
  // default): the position encoding computes its terms. Only if weight_specs() includes such a table.
  void set_position_table(const at::Tensor& table_MD);
  at::Tensor position_table() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Model directories: config.json and model.safetensors, or its shards with model.safetensors.index.json. `head` absent:
// the head that config.json names. `dtype` of the parameters in memory: kFloat or kDouble, from F16, BF16, F32 or F64
// files. The stored position table is compared with the computed one; if they differ by more than 1e-6, TORCH_WARN
// reports it and the stored table is used. The model is in evaluation mode. Only a missing head is initialised, with
// FreshHead::kAllowed; otherwise torch's generator is not used. Errors: a missing file, a missing or unexpected tensor,
// a wrong shape (the message has both), NaN or infinity (with its index), a tied copy that differs from its source. It
// loads checkpoints of transformers' RoFormer and BERT classes, of NEZHA in its version 4, and directories of
// save_model.
std::shared_ptr<Model> load_model(const std::string& model_dir, std::optional<Head> head, at::ScalarType dtype,
                                  FreshHead fresh_head = FreshHead::kForbidden);
// The same with `config` instead of the directory's configuration, from which it may differ in the purpose of its head:
// labels, problem_type, summary_type, classifier_pooling (with which a BERT's position table has another name).
std::shared_ptr<Model> load_model(const std::string& model_dir, const ModelConfig& config, Head head,
                                  at::ScalarType dtype, FreshHead fresh_head);
enum class StoredTerms { kWritten, kLeftOut };
// model.safetensors (float32, metadata format=pt) and config.json with `architectures`, as transformers reads them if
// it knows the model_type; and position_terms.safetensors if the engine needs it (rf/nn/position_terms.h), except with
// kLeftOut, for checkpoints that only training reads. A missing directory is created.
void save_model(const Model& model, const std::string& model_dir, StoredTerms terms = StoredTerms::kWritten);

// A copy of the data that save_model writes with kLeftOut, so that training can continue while the model is written.
class ModelSnapshot {
 public:
  // Copies the weights into the memory of the last call; the model must always be the same.
  void take(const Model& model);
  void take(const TranslationModel& model);
  // Does not call operators of torch, so a separate writing thread does not occupy a core of the computing threads.
  void write(const std::string& model_dir) const;

 private:
  void take(std::string config, const std::vector<WeightSpec>& specs, const std::vector<at::Tensor>& values);

  std::string config_;  // JSON
  std::vector<WeightSpec> specs_;
  std::vector<at::Tensor> values_;
};

}  // namespace rf::nn
