// The task of a fine-tuned model, so that predict and evaluate work without options: task.json in its directory, or the
// files of transformers and sentence-transformers (model_task.h).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rf/text/batch.h"

namespace rf::tasks {

// Which part of an overlong text is kept. kHeadTail: half of the tokens from its beginning, half from its end.
enum class Keep { kHead, kTail, kHeadTail };
// How the logits of a text's windows are combined: their mean or their maximum.
enum class Pooling { kMean, kMax };
// The activation of the single logit of a model that predicts numbers.
enum class ScoreActivation { kIdentity, kSigmoid, kTanh, kRelu };

struct TaskSettings {
  std::string kind;                                               // a name in the table of tasks
  std::map<std::string, std::string> columns;                     // column read by the task -> field of the record
  std::vector<std::string> labels;                                // of the classes, in the order of their ids
  int64_t max_length = 128;                                       // tokens per row, including special tokens
  text::Truncation truncation = text::Truncation::kLongestFirst;  // which text of a pair is truncated
  Keep keep = Keep::kHead;
  int64_t windows = 1;  // maximum number of windows for an overlong text; 1: it is truncated
  int64_t stride = 0;   // overlapping tokens of consecutive windows
  Pooling pooling = Pooling::kMean;
  std::string metric;      // selects the best model
  bool no_answer = false;  // answers: a record may be without an answer

  // For models without task.json; not stored in it.
  ScoreActivation activation = ScoreActivation::kIdentity;
  std::string prompt{};           // before the first text of a record
  bool pair_is_optional = false;  // a record without the field of `pair` is a single text
  bool token_types = true;        // models read them
  bool ids_are_labels = false;    // a target may be the id of its label, as in data sets for transformers
};

nlohmann::json to_json(const TaskSettings& settings);
// Reads task.json strictly; throws Error, also for an unknown kind.
TaskSettings load_task_settings(const std::string& model_dir);
// Throws Error for contradictory settings.
void check_settings(const TaskSettings& settings);

inline constexpr const char* kTaskFile = "task.json";

}  // namespace rf::tasks
