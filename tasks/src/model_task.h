// The task of a model directory: task.json, or derived from the head in transformers' config.json.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "rf/model/config.h"
#include "rf/tasks/settings.h"

namespace rf::tasks {

struct ModelTask {
  std::string model_dir;  // contains config.json: the folder of a module in some directories of sentence-transformers
  TaskSettings settings;
};

// Throws Error for a directory without task.json whose model lacks a task head, or whose task is not supported.
ModelTask task_of_model(const std::string& model_dir, const std::function<void(const std::string&)>& note);

constexpr int64_t kMaxRowTokens = int64_t{1} << 24;  // that check_settings accepts

// The maximum number of tokens in a row, limited by transformers' tokenizer and the positions; at most `limit`.
int64_t row_length(const std::string& model_dir, const ModelConfig& config, int64_t limit);

}  // namespace rf::tasks
