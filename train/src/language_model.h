// One micro-batch of language modelling, masked or causal: tensors, the loss at the predicted positions, and held-out
// evaluation (spec R-TRN-01, R-TRN-02, R-MET-01). The hidden states are gathered at these positions before the head, so
// no other logits are computed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ranks.h"
#include "rf/data/batcher.h"
#include "rf/nn/model.h"
#include "rf/train/pretrain.h"

namespace rf::train {

// The objective of a model: causal, with the head of that name, if its attention is causal, otherwise masked.
inline data::Objective objective_of(const ModelConfig& config) {
  return config.is_decoder ? data::Objective::kCausal : data::Objective::kMasked;
}
inline Head head_of(data::Objective objective, data::Pairs pairs) {
  if (pairs != data::Pairs::kNone) return Head::kPreTraining;
  return objective == data::Objective::kCausal ? Head::kCausalLm : Head::kMaskedLm;
}

struct LanguageBatch {
  nn::Input input;
  at::Tensor places_N;  // int64, flat indices into [B*T] of the predicted positions
  at::Tensor labels_N;  // int64
  // With pairs of sentences, otherwise undefined: flat indices of their [CLS], and their classes. int64, [P].
  at::Tensor pair_places_P, pair_labels_P;
  int64_t real_tokens = 0;

  int64_t pairs() const { return pair_labels_P.defined() ? pair_labels_P.numel() : 0; }
};

// Copies the batch; ids, types, places and labels to `device`, without waiting for it. Segments and
// positions are left out of the input if every row is one segment without padding: the model's defaults then compute
// the same, faster.
LanguageBatch to_tensors(const data::Batch& batch, at::Device device = at::kCPU);

// The logits of one forward pass: at the batch's predicted positions, and of its pairs; undefined without them.
struct LanguageLogits {
  at::Tensor labels_NV, pairs_P2;
};
LanguageLogits language_logits(nn::Model& model, const LanguageBatch& batch);
// Pairs whose class has the larger logit: their number, int64, a scalar.
at::Tensor correct_pairs(const at::Tensor& logits_P2, const at::Tensor& labels_P);
// Cross-entropy of the labels, summed, nats.
double label_loss_sum(nn::Model& model, const LanguageBatch& batch);

// Unigram distribution of a split's tokens with one added to every count: the baseline without context.
class UnigramModel {
 public:
  explicit UnigramModel(const data::Split& split);
  double cost(int64_t id) const { return cost_[static_cast<size_t>(id)]; }  // -log p(id), nats

 private:
  std::vector<double> cost_;
};

// Runs the model in evaluation mode over the batcher's rows in order, at most max_batches batches (0: all), and
// restores its mode. `tick` is called after each batch with the number of batches done. The ranks share the batches,
// and their sums are added in the order of the batches: the result has the same bits for any number of ranks.
EvaluationReport evaluate_rows(nn::Model& model, const data::Batcher& batcher, const UnigramModel& unigram,
                               Precision precision, int64_t max_batches, const std::function<void(int64_t)>& tick,
                               const Ranks& ranks);

// Loss in nats per predicted token of the rows that evaluate_rows measures; nullopt without predicted tokens.
std::optional<double> unigram_loss(const data::Batcher& batcher, const UnigramModel& unigram, int64_t max_batches);

}  // namespace rf::train
