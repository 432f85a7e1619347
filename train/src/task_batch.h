// Examples of a task as tensors, and the logits of a forward pass as the plain numbers that tasks read.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "rf/nn/model.h"
#include "rf/tasks/task.h"

namespace rf::train {

// The examples of one forward pass: their rows in sequence, padded to the longest.
struct TaskBatch {
  nn::Input input;
  std::vector<const tasks::Example*> examples;
  at::Tensor tokens_N;  // int64, flat indices into [B*T] of the tokens that are not padding
};
TaskBatch make_batch(std::span<const tasks::Example* const> examples, int64_t pad_id);

// The logits of the batch as tasks::Logits has them: float32 [lines, columns], contiguous, and differentiable.
at::Tensor logits_of(const nn::Output& output, const TaskBatch& batch, Head head);
tasks::Logits view_of(const at::Tensor& logits_NL);

// The mean over the terms of all examples; 0 without terms.
struct TaskLoss {
  double mean = 0;
  at::Tensor gradient_NL;  // of the mean by the logits
};
TaskLoss task_loss(const tasks::Task& task, const TaskBatch& batch, const at::Tensor& logits_NL,
                   double label_smoothing);

}  // namespace rf::train
