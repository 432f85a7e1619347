// A task with its model in training, and the model's scores for examples.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "rf/nn/model.h"
#include "rf/tasks/examples.h"
#include "rf/text/tokenizer.h"

namespace rf::train {

struct TaskModel {
  tasks::TaskSettings settings;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::unique_ptr<tasks::Task> task;
  std::shared_ptr<nn::Model> model;
};

// Throws Error if the model cannot read rows of that many tokens.
void check_length(const nn::Model& model, int64_t max_length);

// Evaluates the model in float32 on examples with targets, and restores its mode. Examples of similar lengths are
// batched. `tick` is called after each batch with the number of examples done; it may be empty.
tasks::Evaluated score_examples(TaskModel& model, std::span<const tasks::Example> examples,
                                const std::function<void(size_t)>& tick);

}  // namespace rf::train
