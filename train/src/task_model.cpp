// Batches of a task, and scoring with the model in training (task_model.h).
#include "task_model.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>
#include "device.h"
#include "rf/nn/devices.h"

namespace rf::train {

using tasks::Example, tasks::TokenRow;

TaskBatch make_batch(std::span<const Example* const> examples, int64_t pad_id, at::Device device) {
  TaskBatch batch;
  batch.examples.assign(examples.begin(), examples.end());
  int64_t rows = 0, length = 0;
  for (const Example* example : examples) {
    rows += std::ssize(example->rows);
    length = std::max(length, example->longest_row());
  }
  at::Tensor& ids_RT = batch.input.ids_BT = at::full({rows, length}, pad_id, at::kLong);
  at::Tensor& types_RT = batch.input.types_BT = at::zeros({rows, length}, at::kLong);
  at::Tensor segments_RT = at::full({rows, length}, -1, at::kInt);  // -1: padding
  std::vector<int64_t> tokens;
  int64_t begin = 0;
  for (const Example* example : examples) {
    for (const TokenRow& row : example->rows) {
      std::copy(row.ids.begin(), row.ids.end(), ids_RT.mutable_data_ptr<int64_t>() + begin);
      std::copy(row.types.begin(), row.types.end(), types_RT.mutable_data_ptr<int64_t>() + begin);
      std::fill_n(segments_RT.mutable_data_ptr<int32_t>() + begin, row.ids.size(), 0);
      for (int64_t t = 0; t < std::ssize(row.ids); ++t) tokens.push_back(begin + t);
      begin += length;
    }
  }
  if (std::ssize(tokens) < rows * length) batch.input.sequence_ids_BT = segments_RT;
  batch.tokens_N = at::tensor(tokens, at::kLong);
  for (at::Tensor* x : {&ids_RT, &types_RT, &batch.tokens_N}) *x = nn::on_device(*x, device);
  return batch;
}

at::Tensor logits_of(const nn::Output& output, const TaskBatch& batch, Head head) {
  const bool is_answer = output.start_logits_BT.defined();
  const at::Tensor logits = is_answer ? at::stack({output.start_logits_BT, output.end_logits_BT}, -1) : output.logits;
  if (!reads_tokens(head)) return logits.to(at::kFloat).contiguous();
  return logits.flatten(0, 1).index_select(0, batch.tokens_N).to(at::kFloat).contiguous();
}

tasks::Logits view_of(const at::Tensor& logits_NL) {
  return {{logits_NL.const_data_ptr<float>(), static_cast<size_t>(logits_NL.numel())}, logits_NL.size(1)};
}

TaskLoss task_loss(const tasks::Task& task, const TaskBatch& batch, const at::Tensor& logits_NL,
                   double label_smoothing) {
  const at::Tensor read_NL = nn::on_cpu(logits_NL.detach());
  const tasks::Loss loss = tasks::loss_of(task, batch.examples, view_of(read_NL), label_smoothing);
  const auto terms = static_cast<double>(std::max<int64_t>(1, loss.terms));
  TaskLoss result{loss.sum / terms, at::empty_like(read_NL)};
  std::transform(loss.gradient.begin(), loss.gradient.end(), result.gradient_NL.mutable_data_ptr<float>(),
                 [terms](double derivative) { return static_cast<float>(derivative / terms); });
  result.gradient_NL = nn::on_device(result.gradient_NL, logits_NL.device());
  return result;
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
    const TaskBatch batch = make_batch(of_batch, model.model->config().pad_token_id, device_of(*model.model));
    const at::Tensor logits_NL = nn::on_cpu(logits_of(model.model->forward(batch.input), batch, model.task->head()));
    evaluation.add(chosen, view_of(logits_NL));
    begin += chosen.size();
    if (tick) tick(begin);
  }
  model.model->train(was_training);
  return std::move(evaluation).result();
}

}  // namespace rf::train
