// A task with its model, and the model's scores for examples.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rf/text/tokenizer.h"
#include "rf/train/run_config.h"
#include "task.h"

namespace rf::train {

struct TaskModel {
  TaskSettings settings;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::unique_ptr<Task> task;
  std::shared_ptr<nn::Model> model;
};

// A model's tokenizer. Throws Error for a vocabulary that is larger than the model's, or without [PAD].
std::shared_ptr<const text::Tokenizer> load_task_tokenizer(const std::string& model_dir, const text::LoadOptions& load);
// A fine-tuned model. max_length: in place of the task's; columns: fields of the task's columns with other names.
TaskModel load_task_model(const std::string& model_dir, const text::LoadOptions& load,
                          std::optional<int64_t> max_length, const std::map<std::string, std::string>& columns);
// Throws Error if the model cannot read rows of that many tokens.
void check_length(const nn::Model& model, int64_t max_length);

struct Evaluated {
  std::vector<Scores> scores;  // of each example
  double loss = 0;             // the mean over the terms of all examples, whatever the batches
};
// Evaluates the model in float32 and restores its mode. Examples of similar lengths are batched, `batch` at a time.
// `tick` is called after each batch with the number of examples done; it may be empty. The loss is computed if the
// examples have targets.
Evaluated score_examples(TaskModel& model, std::span<const Example> examples, int64_t batch, Targets targets,
                         const std::function<void(size_t)>& tick);

// Records with their examples.
struct TaskSplit {
  std::vector<data::Record> records;
  std::vector<Example> examples;

  std::vector<Scored> with(std::vector<Scores> scores) const;
};

}  // namespace rf::train
