// One micro-batch of masked language modelling: tensors, the loss over masked positions, and held-out evaluation
// (spec R-TRN-01, R-TRN-02, R-MET-01). The hidden states are gathered at the masked positions before the head, so no
// logits are made elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "rf/data/batcher.h"
#include "rf/nn/model.h"
#include "rf/train/pretrain.h"

namespace rf::train {

struct MaskedBatch {
  nn::Input input;
  at::Tensor masked_N;  // int64, flat indices into [B*T]
  at::Tensor labels_N;  // int64
  int64_t real_tokens = 0;
};

// Copies. Segments and positions are left out of the input when every row is one segment without padding: the model's
// defaults are the same function then, and cheaper.
MaskedBatch to_tensors(const data::Batch& batch);

// Autocast to bfloat16 on the CPU while the scope lives; nothing with Precision::kFloat32. Casts of weights are kept
// until the scope ends, so a scope must not span a change of the weights.
class AutocastScope {
 public:
  explicit AutocastScope(Precision precision);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool active_;
};

// Logits [N,V] at the masked positions. The batch must have at least one.
at::Tensor masked_logits(nn::Model& model, const MaskedBatch& batch);
// Cross-entropy of the masked tokens, summed, float32 scalar (nats).
at::Tensor masked_loss_sum(nn::Model& model, const MaskedBatch& batch);

// Unigram distribution of a split's tokens with one added to every count: the cross-entropy that knows no context.
class UnigramModel {
 public:
  explicit UnigramModel(const data::Split& split);
  double cost(int64_t id) const { return cost_[static_cast<size_t>(id)]; }  // -log p(id), nats

 private:
  std::vector<double> cost_;
};

// Runs the model in evaluation mode over the batcher's rows in order, at most max_batches batches (0: all), and puts it
// back into the mode it was in. `tick` is called after each batch with the number of batches done.
EvaluationReport evaluate_rows(nn::Model& model, const data::Batcher& batcher, const UnigramModel& unigram,
                               Precision precision, int64_t max_batches, const std::function<void(int64_t)>& tick);

}  // namespace rf::train
