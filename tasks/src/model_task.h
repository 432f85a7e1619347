// The task of a model directory: task.json, or what config.json of transformers says about its head.
#pragma once

#include <functional>
#include <string>

#include "rf/model/config.h"
#include "rf/tasks/settings.h"

namespace rf::tasks {

struct ModelTask {
  std::string model_dir;  // with config.json: a module's folder in some directories of sentence-transformers
  TaskSettings settings;
};

// Throws Error for a directory without task.json whose model has no head of a task, or one that is not computed.
ModelTask task_of_model(const std::string& model_dir, const std::function<void(const std::string&)>& note);

// The most tokens of a row, as transformers' tokenizer and the positions allow; at most `limit`.
int64_t row_length(const std::string& model_dir, const ModelConfig& config, int64_t limit);

}  // namespace rf::tasks
