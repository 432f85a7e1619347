// A task: what it reads from a record, the model's head, its loss, and its metrics. Each kind is one source file and
// one line in table.cpp.
//
// A record becomes an Example: the rows that the model reads, and the targets. A record may have several inputs (the
// candidates of a triple, the choices of a question), and an input has one row, or several if a long text is read in
// windows. The logits of an input's rows are pooled before the loss, also in training.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "input_rows.h"
#include "rf/data/records.h"
#include "rf/nn/model.h"
#include "rf/train/task_settings.h"

namespace rf::train {

struct Example {
  std::vector<TokenRow> rows;
  std::vector<int64_t> rows_of_input;  // the number of rows of each input, in order
  std::vector<int64_t> targets;        // as each task defines them; empty if not known
  double number = 0;                   // the target of regression
  // tokens: row and position of each word's first piece, {-1, -1} if it has none. answers: for every token of every row
  // its bytes of the context, {-1, -1} if none.
  std::vector<std::array<int32_t, 2>> places;

  int64_t longest_row() const;
};
// Adds an input with these rows.
void add_input(std::span<const text::Row> rows, Example& example);
// Adds an input with the texts of the columns `text` and, if settings.columns has it, `pair`.
void add_text_input(const data::Record& record, const TaskSettings& settings, InputRows& rows, Example& example);

// The examples of one forward pass: their rows one after another, padded to the longest.
struct Batch {
  nn::Input input;
  std::vector<const Example*> examples;
  at::Tensor rows_of_input;  // int64
};
Batch make_batch(std::span<const Example* const> examples, int64_t pad_id);
// [rows, L] -> [inputs, L]: pools the logits of each input's rows.
at::Tensor pooled(const at::Tensor& logits_RL, const Batch& batch, Pooling pooling);

// A model's output for an example: numbers, as each task defines them.
using Scores = std::vector<double>;
// A record, its example, and a model's scores for it.
struct Scored {
  const data::Record* record;
  const Example* example;
  Scores scores;
};

enum class Targets { kNeeded, kIgnored };

class Task {
 public:
  virtual ~Task() = default;

  virtual Head head() const = 0;
  // num_labels, id2label, problem_type, as transformers has them for this use of the head.
  virtual void set_outputs(ModelConfig& config) const = 0;
  // Throws Error, naming file and line, for a record without the fields that the task needs.
  virtual Example example(const data::Record& record, Targets targets) = 0;
  // Mean over the terms that loss_terms() counts; float32 scalar.
  virtual at::Tensor loss(const nn::Output& output, const Batch& batch, double label_smoothing) const = 0;
  // The number of terms: one per example, unless a task has several predictions for an example.
  virtual int64_t loss_terms(const Batch& batch) const { return static_cast<int64_t>(batch.examples.size()); }
  // One for each of the batch's examples.
  virtual std::vector<Scores> scores(const nn::Output& output, const Batch& batch) const = 0;
  // The keys of `predict` for a record, without those that identify the record.
  virtual nlohmann::json prediction(const data::Record& record, const Scores& scores) const = 0;
  // By name; null where a metric is not defined. Greater is better for all but "mse".
  virtual nlohmann::json metrics(std::span<const Scored> scored) const = 0;
  // Scores of a baseline that uses the targets of the training examples and no inputs: the most frequent class, the
  // mean, a guess.
  virtual std::vector<Scores> baseline(std::span<const Example> train, std::span<const Example> examples) const = 0;
  // Scores of a baseline that uses the tokens of texts without their order (bag_of_words.h); empty for tasks that are
  // neither the class of a text nor a comparison of two.
  virtual std::vector<Scores> bag_of_words(std::span<const Example>, std::span<const Example>) const { return {}; }
  // Confusion of the classes: counts[gold][predicted]; empty for a task without classes.
  virtual std::vector<std::vector<int64_t>> confusion(std::span<const Scored>) const { return {}; }
};

struct TaskColumn {
  const char* name;  // in --columns and task.json; the field has this name unless another is given
  enum class Use {
    kInput,
    kOptionalInput,  // read if the training records have it, or if it is named
    kTarget,
  } use;
};

struct TaskKind {
  const char* name;
  const char* summary;
  std::vector<TaskColumn> columns;
  std::vector<const char*> metrics;  // that may choose the best model; the default is the first that the task reports
  // Reads settings from the training records, such as labels. nullptr: there are none.
  void (*learn)(std::span<const data::Record> records, TaskSettings& settings);
  std::unique_ptr<Task> (*make)(const TaskSettings& settings, std::shared_ptr<const text::Tokenizer> tokenizer);
  bool has_classes = true;  // a target is one of several classes, and may be smoothed
};

const std::vector<TaskKind>& task_kinds();
// Throws Error, with the most similar name, for a name that is not in the table.
const TaskKind& task_kind(const std::string& name);

}  // namespace rf::train
