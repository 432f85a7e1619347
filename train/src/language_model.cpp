// Language modelling on one micro-batch, and evaluation (language_model.h).
#include "language_model.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "autocast.h"
#include "cross_entropy.h"
#include "device.h"
#include "rf/nn/devices.h"

namespace rf::train {

namespace {

template <typename T>
at::Tensor to_tensor(const std::vector<T>& values, at::IntArrayRef shape, at::ScalarType dtype) {
  at::Tensor tensor = at::empty(shape, dtype);
  if (!values.empty()) std::memcpy(tensor.data_ptr(), values.data(), values.size() * sizeof(T));
  return tensor;
}

class EvaluationMode {
 public:
  explicit EvaluationMode(nn::Model& model) : model_(model), was_training_(model.is_training()) { model.eval(); }
  ~EvaluationMode() { model_.train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  nn::Model& model_;
  bool was_training_;
};

}  // namespace

LanguageBatch to_tensors(const data::Batch& batch, at::Device device) {
  const std::vector<int64_t> shape = {batch.batch_size, batch.length};
  const int64_t places = static_cast<int64_t>(batch.places.size());
  LanguageBatch result;
  result.input.ids_BT = to_tensor(batch.ids, shape, at::kLong);
  if (batch.runs > batch.batch_size) {
    result.input.sequence_ids_BT = to_tensor(batch.segments, shape, at::kInt);
    result.input.positions_BT = to_tensor(batch.positions, shape, at::kLong);
  }
  result.places_N = to_tensor(batch.places, {places}, at::kLong);
  result.labels_N = to_tensor(batch.labels, {places}, at::kLong);
  if (!batch.types.empty()) {
    const int64_t pairs = std::ssize(batch.pair_labels);
    result.input.types_BT = to_tensor(batch.types, shape, at::kLong);
    result.pair_places_P = to_tensor(batch.pair_places, {pairs}, at::kLong);
    result.pair_labels_P = to_tensor(batch.pair_labels, {pairs}, at::kLong);
  }
  result.real_tokens = batch.real_tokens;
  for (at::Tensor* x : {&result.input.ids_BT, &result.input.types_BT, &result.places_N, &result.labels_N,
                        &result.pair_places_P, &result.pair_labels_P}) {
    *x = nn::on_device(*x, device);
  }
  return result;
}

LanguageLogits language_logits(nn::Model& model, const LanguageBatch& batch) {
  const at::Tensor hidden_MC = model.encode(batch.input).flatten(0, 1);
  LanguageLogits logits;
  if (batch.places_N.numel() > 0) {
    logits.labels_NV = model.masked_lm_logits(hidden_MC.index_select(0, batch.places_N));
  }
  if (batch.pairs() > 0) logits.pairs_P2 = model.pair_logits(hidden_MC.index_select(0, batch.pair_places_P));
  return logits;
}

at::Tensor correct_pairs(const at::Tensor& logits_P2, const at::Tensor& labels_P) {
  return logits_P2.argmax(-1).eq(labels_P).sum();
}

double label_loss_sum(nn::Model& model, const LanguageBatch& batch) {
  return summed_cross_entropy(language_logits(model, batch).labels_NV, batch.labels_N);
}

UnigramModel::UnigramModel(const data::Split& split) {
  const std::vector<int64_t> counts = split.token_counts();
  const auto total = static_cast<double>(split.tokens() + std::ssize(counts));
  for (const int64_t count : counts) cost_.push_back(std::log(total / static_cast<double>(count + 1)));
}

namespace {

struct BatchSums {
  double loss = 0, unigram_loss = 0;  // nats
  double correct = 0, predicted = 0;  // tokens
  double pair_loss = 0;               // nats
  double correct_pairs = 0, pairs = 0;
};

BatchSums sums_of(nn::Model& model, const data::Batch& batch, const UnigramModel& unigram) {
  BatchSums sums;
  if (batch.places.empty() && batch.pair_places.empty()) return sums;
  const LanguageBatch tensors = to_tensors(batch, device_of(model));
  const LanguageLogits logits = language_logits(model, tensors);
  for (const int64_t id : batch.labels) sums.unigram_loss += unigram.cost(id);
  sums.predicted = static_cast<double>(batch.labels.size());
  if (const at::Tensor& logits_NV = logits.labels_NV; logits_NV.defined()) {
    sums.loss = summed_cross_entropy(logits_NV, tensors.labels_N);
    sums.correct = static_cast<double>(logits_NV.argmax(-1).eq(tensors.labels_N).sum().item<int64_t>());
  }
  if (logits.pairs_P2.defined()) {
    sums.pair_loss = summed_cross_entropy(logits.pairs_P2, tensors.pair_labels_P);
    sums.correct_pairs = static_cast<double>(correct_pairs(logits.pairs_P2, tensors.pair_labels_P).item<int64_t>());
    sums.pairs = static_cast<double>(tensors.pairs());
  }
  return sums;
}

}  // namespace

std::optional<double> unigram_loss(const data::Batcher& batcher, const UnigramModel& unigram, int64_t max_batches) {
  double sum = 0;
  int64_t row = 0, done = 0, predicted = 0;
  data::Batch batch;
  const auto add = [&] {
    for (const int64_t id : batch.labels) sum += unigram.cost(id);
    predicted += std::ssize(batch.labels);
  };
  for (; (max_batches == 0 || done < max_batches) && batcher.next_in_order(row, batch); ++done) add();
  if (predicted == 0) {
    batch = batcher.least_in_order(done);
    add();
  }
  return predicted > 0 ? std::optional(sum / static_cast<double>(predicted)) : std::nullopt;
}

EvaluationReport evaluate_rows(nn::Model& model, const data::Batcher& batcher, const UnigramModel& unigram,
                               Precision precision, int64_t max_batches, const std::function<void(int64_t)>& tick,
                               const Ranks& ranks) {
  const EvaluationMode mode(model);
  const at::NoGradGuard no_grad;
  const AutocastScope autocast(precision, device_of(model));
  std::vector<BatchSums> own;
  int64_t row = 0, done = 0;
  data::Batch batch;
  ranks.together([&] {
    for (; (max_batches == 0 || done < max_batches) && batcher.next_in_order(row, batch); ++done) {
      if (!ranks.has(done)) continue;
      own.push_back(sums_of(model, batch, unigram));
      tick(done + 1);
    }
  });
  BatchSums total = sum_of_parts(ranks, own, done);
  if (total.predicted == 0) {  // short texts and few masks
    const BatchSums least = sums_of(model, batcher.least_in_order(done), unigram);
    std::tie(total.loss, total.unigram_loss, total.correct, total.predicted) =
        std::tie(least.loss, least.unigram_loss, least.correct, least.predicted);
  }
  if (total.predicted == 0) {
    ranks.fail_on_all(fmt::format(
        "[evaluate] the held-out rows must have at least one token to predict, got none in {} batches", done));
  }
  return {.loss = total.loss / total.predicted,
          .accuracy = total.correct / total.predicted,
          .unigram_loss = total.unigram_loss / total.predicted,
          .predicted_tokens = static_cast<int64_t>(total.predicted),
          .pair_loss = total.pair_loss / std::max(total.pairs, 1.0),
          .pair_accuracy = total.correct_pairs / std::max(total.pairs, 1.0),
          .pairs = static_cast<int64_t>(total.pairs)};
}

}  // namespace rf::train
