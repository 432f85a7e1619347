// A task with its model in training: examples as tensors, the logits of a forward pass as the plain numbers that tasks
// read, and the model's scores for examples.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "rf/nn/model.h"
#include "rf/tasks/examples.h"
#include "rf/tasks/task.h"
#include "rf/text/tokenizer.h"

namespace rf::train {

// The examples of one forward pass: their rows in sequence, padded to the longest.
struct TaskBatch {
  nn::Input input;
  std::vector<const tasks::Example*> examples;
  at::Tensor tokens_N;  // int64, flat indices into [B*T] of the tokens that are not padding
};
// device: of ids, types and tokens.
TaskBatch make_batch(std::span<const tasks::Example* const> examples, int64_t pad_id, at::Device device = at::kCPU);

// The logits of the batch as tasks::Logits has them: float32 [lines, columns], contiguous, and differentiable.
at::Tensor logits_of(const nn::Output& output, const TaskBatch& batch, Head head);
tasks::Logits view_of(const at::Tensor& logits_NL);  // on the CPU

// The mean over the terms of all examples; 0 without terms.
struct TaskLoss {
  double mean = 0;
  at::Tensor gradient_NL;  // of the mean by the logits, on their device
};
TaskLoss task_loss(const tasks::Task& task, const TaskBatch& batch, const at::Tensor& logits_NL,
                   double label_smoothing);

struct TaskModel {
  tasks::TaskSettings settings;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::unique_ptr<tasks::Task> task;
  std::shared_ptr<nn::Model> model;
};

// Evaluates the model in float32 on examples with targets, and restores its mode. Examples of similar lengths are
// batched. `tick` is called after each batch with the number of examples done; it may be empty.
tasks::Evaluated score_examples(TaskModel& model, std::span<const tasks::Example> examples,
                                const std::function<void(size_t)>& tick);

}  // namespace rf::train
