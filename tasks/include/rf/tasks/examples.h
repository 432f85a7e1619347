// Converts records to examples, and computes a model's scores and loss for them; shared by training, prediction and
// evaluation.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rf/io/error.h"
#include "rf/tasks/task.h"
#include "rf/text/tokenizer.h"

namespace rf::tasks {

// The field of each column that the task reads: the given field, otherwise the column's name. Optional columns are
// included if the training records contain them, and "id", which is optional in every record, always. Throws Error for
// a column that the task does not use, and if only some records contain an optional one.
std::map<std::string, std::string> resolve_columns(const TaskKind& kind,
                                                   const std::map<std::string, std::string>& given,
                                                   const std::vector<data::Record>& train);
// Changes the fields of the given columns of a fine-tuned model's task. Throws Error for a column that it does not
// read.
void rename_columns(const std::map<std::string, std::string>& given, TaskSettings& settings);

// A model's tokenizer. Throws Error for a vocabulary that is larger than the model's, or without [PAD].
std::shared_ptr<const text::Tokenizer> load_tokenizer(const std::string& model_dir, const text::LoadOptions& load);
// Throws Error, with the model's reason, for a length that it does not support. Model: engine::Model or nn::Model.
template <typename Model>
void check_length(const Model& model, int64_t max_length) {
  try {
    model.check_length(max_length);
  } catch (const Error& error) {
    fail("task", "max-length must be a length that the model reads, got {}: {}", max_length, error.what());
  }
}

// Throws Error, naming the files, if they contain no records; `name`: "train".
std::vector<data::Record> read_records(const data::RecordOptions& options, const std::string& name);

// Records and their examples.
struct Split {
  std::vector<data::Record> records;
  std::vector<Example> examples;

  std::vector<Scored> with(std::vector<Scores> scores) const;
  // At most `count` records, at equal distances.
  Split sample(size_t count) const;
};
Split make_split(Task& task, std::vector<data::Record> records);

struct Evaluated {
  std::vector<Scores> scores;  // for each example
  double loss = 0;             // the mean over the terms of all examples, regardless of batches
};
// Collects scores and loss from logits, some examples at a time.
class Evaluation {
 public:
  Evaluation(const Task& task, std::span<const Example> examples)
      : task_(task), examples_(examples), scores_(examples.size()), loss_sums_(examples.size()) {}
  // Adds the logits of the examples with these indices; each example must be added once.
  void add(std::span<const size_t> indices, const Logits& logits);
  Evaluated result() &&;

 private:
  const Task& task_;
  std::span<const Example> examples_;
  std::vector<Scores> scores_;
  std::vector<double> loss_sums_;  // for each example
  int64_t terms_ = 0;
};

}  // namespace rf::tasks
