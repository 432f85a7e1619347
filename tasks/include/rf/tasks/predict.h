// Predictions and metrics of a fine-tuned model, a directory with task.json (docs/finetuning.md). The engine computes
// them without padding, and a record's prediction has the same bits whatever other records are read.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rf/data/records.h"
#include "rf/io/progress.h"
#include "rf/text/tokenizer.h"

namespace rf::engine {
enum class Precision;  // rf/engine/precision.h
}

namespace rf::tasks {

struct PredictOptions {
  std::string model_dir;
  data::RecordOptions input;
  std::vector<std::string> texts{};              // for predict, instead of the input: each is a record of one text
  std::map<std::string, std::string> columns{};  // fields of the task's columns that have other names here
  text::LoadOptions load;
  std::string adapter{};              // a folder with an adapter of PEFT, which is added; "": none
  std::optional<int64_t> max_length;  // in place of the task's
  engine::Precision precision{};      // kFloat32
  int64_t batch_tokens = 4096;        // of the rows that are computed together; a longer row is computed alone
  std::function<void(const std::string&)> note;  // receives warnings; may be empty
};
// Calls `line` with the prediction for each record, in order: its index from 0, its line, its id if it has one, and the
// keys of the task. A line of plain text is a record of the task's text. Columns with targets are not read. Memory does
// not grow with the input.
void predict(const PredictOptions& options, const std::function<void(const nlohmann::json&)>& line,
             io::Progress& progress);
// The task's metrics on labelled records, their loss, and their number.
nlohmann::json evaluate(const PredictOptions& options, io::Progress& progress);

// A fine-tuned model that stays open. Thread-safe.
class Predictor {
 public:
  // The options' input and texts are not read.
  explicit Predictor(const PredictOptions& options);

  // The prediction for each record, an object with the task's fields; a string is a record of the task's text. The keys
  // are the same as predict()'s, with `line` counted from 1. A CrossEncoder with a language model gives the `score` of
  // each `text` with its `pair`.
  std::vector<nlohmann::json> predict(const std::vector<nlohmann::json>& records) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // copies share the model
};

}  // namespace rf::tasks
