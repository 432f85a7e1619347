// The task of a fine-tuned model, so that predict and evaluate need no options: task.json in its directory, or what
// transformers and sentence-transformers write into theirs (model_task.h).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rf/text/batch.h"

namespace rf::tasks {

// Which part of a text that is too long is kept. kHeadTail: half of the tokens from its beginning, half from its end.
enum class Keep { kHead, kTail, kHeadTail };
// How the logits of a text's windows are combined: their mean, or the maximum of each.
enum class Pooling { kMean, kMax };
// What is made of the one logit of a model of numbers.
enum class ScoreActivation { kIdentity, kSigmoid, kTanh, kRelu };

struct TaskSettings {
  std::string kind;                                               // a name in the table of tasks
  std::map<std::string, std::string> columns;                     // what the task reads -> the field that holds it
  std::vector<std::string> labels;                                // of the classes, in order of their ids
  int64_t max_length = 128;                                       // tokens of a row, special tokens included
  text::Truncation truncation = text::Truncation::kLongestFirst;  // which text of a pair loses tokens
  Keep keep = Keep::kHead;
  int64_t windows = 1;  // largest number of windows of a text that is too long; 1: it is truncated
  int64_t stride = 0;   // tokens that a window repeats of the one before
  Pooling pooling = Pooling::kMean;
  std::string metric;      // chooses the best model
  bool no_answer = false;  // answers: a record may have none

  // Of models without task.json, and not in it.
  ScoreActivation activation = ScoreActivation::kIdentity;
  std::string prompt{};           // before the first text of a record
  bool pair_is_optional = false;  // a record without the field of `pair` is one text
  bool ids_are_labels = false;    // a target may be the id of its label, as in data sets for transformers
};

nlohmann::json to_json(const TaskSettings& settings);
// Reads task.json strictly; throws Error, also for a kind that is not in the table.
TaskSettings load_task_settings(const std::string& model_dir);
// Throws Error for settings that contradict each other.
void check_settings(const TaskSettings& settings);

inline constexpr const char* kTaskFile = "task.json";

}  // namespace rf::tasks
