// Language modelling on one micro-batch, and evaluation (language_model.h).
#include "language_model.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <cstring>

#include "autocast.h"
#include "cross_entropy.h"
#include "rf/io/error.h"

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

LanguageBatch to_tensors(const data::Batch& batch) {
  const std::vector<int64_t> shape = {batch.batch_size, batch.length};
  const int64_t places = static_cast<int64_t>(batch.places.size());
  LanguageBatch result;
  result.input.ids_BT = to_tensor(batch.ids, shape, at::kLong);
  const int64_t runs = std::ssize(batch.ends) - 1;
  if (runs > batch.batch_size) {  // padding is a run, too
    result.input.ends_N = to_tensor(batch.ends, {runs + 1}, at::kLong);
    result.input.segments_BT = to_tensor(batch.segments, shape, at::kInt);
    result.input.positions_BT = to_tensor(batch.positions, shape, at::kLong);
  }
  result.places_N = to_tensor(batch.places, {places}, at::kLong);
  result.labels_N = to_tensor(batch.labels, {places}, at::kLong);
  result.real_tokens = batch.real_tokens;
  return result;
}

at::Tensor label_logits(nn::Model& model, const LanguageBatch& batch) {
  const at::Tensor hidden_BTC = model.encode(batch.input);
  const at::Tensor hidden_NC = hidden_BTC.flatten(0, 1).index_select(0, batch.places_N);
  return model.masked_lm_logits(hidden_NC);
}

double label_loss_sum(nn::Model& model, const LanguageBatch& batch) {
  return summed_cross_entropy(label_logits(model, batch), batch.labels_N);
}

UnigramModel::UnigramModel(const data::Split& split) : cost_(static_cast<size_t>(split.vocab_size())) {
  constexpr int64_t kPiece = int64_t{1} << 16;
  std::vector<int64_t> counts(cost_.size(), 1);
  std::vector<int32_t> ids(kPiece);
  std::vector<uint8_t> starts_word(kPiece);
  for (int64_t document = 0; document < split.documents(); ++document) {
    const int64_t tokens = split.document_tokens(document);
    for (int64_t begin = 0; begin < tokens; begin += kPiece) {
      const int64_t count = std::min(kPiece, tokens - begin);
      split.copy(document, begin, count, ids.data(), starts_word.data());
      for (int64_t i = 0; i < count; ++i) ++counts[static_cast<size_t>(ids[static_cast<size_t>(i)])];
    }
  }
  const double total = static_cast<double>(split.tokens()) + static_cast<double>(counts.size());
  for (size_t id = 0; id < counts.size(); ++id) cost_[id] = std::log(total / static_cast<double>(counts[id]));
}

EvaluationReport evaluate_rows(nn::Model& model, const data::Batcher& batcher, const UnigramModel& unigram,
                               Precision precision, int64_t max_batches, const std::function<void(int64_t)>& tick) {
  const EvaluationMode mode(model);
  const at::NoGradGuard no_grad;
  const AutocastScope autocast(precision);
  EvaluationReport report;
  int64_t correct = 0, row = 0, done = 0;
  data::Batch batch;
  while ((max_batches == 0 || done < max_batches) && batcher.next_in_order(row, batch)) {
    ++done;
    if (batch.places.empty()) continue;
    const LanguageBatch tensors = to_tensors(batch);
    const at::Tensor logits_NV = label_logits(model, tensors);
    report.loss += summed_cross_entropy(logits_NV, tensors.labels_N);
    correct += logits_NV.argmax(-1).eq(tensors.labels_N).sum().item<int64_t>();
    for (const int64_t id : batch.labels) report.unigram_loss += unigram.cost(id);
    report.predicted_tokens += static_cast<int64_t>(batch.labels.size());
    tick(done);
  }
  if (report.predicted_tokens == 0) {
    fail("evaluate", "the held-out rows must have at least one token to predict, got none in {} batches", done);
  }
  const double count = static_cast<double>(report.predicted_tokens);
  report.loss /= count;
  report.unigram_loss /= count;
  report.accuracy = static_cast<double>(correct) / count;
  return report;
}

}  // namespace rf::train
