// Scoring with the model in training (task_model.h).
#include "task_model.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>

#include "readable_length.h"
#include "rf/io/error.h"
#include "task_batch.h"

namespace rf::train {

void check_length(const nn::Model& model, int64_t max_length) {
  const std::string reason = why_too_long(model, max_length);
  if (!reason.empty()) tasks::fail_length(max_length, reason);
}

tasks::Evaluated score_examples(TaskModel& model, std::span<const tasks::Example> examples,
                                const std::function<void(size_t)>& tick) {
  constexpr size_t kBatch = 32;
  const c10::NoGradGuard no_grad;
  const bool was_training = model.model->is_training();
  model.model->eval();
  std::vector<size_t> order(examples.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return examples[a].longest_row() < examples[b].longest_row(); });
  tasks::Evaluation evaluation(*model.task, examples);
  for (size_t begin = 0; begin < order.size();) {
    const auto chosen = std::span(order).subspan(begin, std::min(kBatch, order.size() - begin));
    std::vector<const tasks::Example*> of_batch;
    for (const size_t i : chosen) of_batch.push_back(&examples[i]);
    const TaskBatch batch = make_batch(of_batch, model.model->config().pad_token_id);
    const at::Tensor logits_NL = logits_of(model.model->forward(batch.input), batch, model.task->head());
    evaluation.add(chosen, view_of(logits_NL));
    begin += chosen.size();
    if (tick) tick(begin);
  }
  model.model->train(was_training);
  return std::move(evaluation).result();
}

}  // namespace rf::train
