// A fine-tuned model: its task, its tokenizer, and the engine with its weights.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rf/engine/model.h"
#include "rf/tasks/predict.h"
#include "rf/tasks/task.h"

namespace rf::tasks {

// Logits that own their numbers.
struct OwnLogits {
  std::vector<float> values;
  int64_t columns = 1;

  operator Logits() const { return {values, columns}; }
};

class TunedModel {
 public:
  // Throws Error for a directory without a task, or with a task that does not match the model.
  explicit TunedModel(const PredictOptions& options);

  const TaskSettings& settings() const { return settings_; }
  Task& task() const { return *task_; }
  // Throws Error for logits that are not finite; records: of the examples, for messages.
  OwnLogits logits(std::span<const Example* const> examples, std::span<const data::Record> records) const;

 private:
  TaskSettings settings_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::unique_ptr<Task> task_;
  std::optional<engine::Model> model_;
};

}  // namespace rf::tasks
