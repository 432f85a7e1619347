// A task: what it reads from a record, the model's head, how logits become a loss, scores and predictions, and its
// metrics. Each kind is one source file in tasks/kinds and one line of its table.cpp. Free of torch: logits are plain
// numbers, whether an engine::Model computed them or a model that is trained.
//
// A record becomes an Example: the rows that the model reads, and the targets. A record may have several inputs (the
// candidates of a triple, the choices of a question), and an input has one row, or several if a long text is read in
// windows. The logits of an input's rows are pooled before the loss, also in training.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "rf/data/records.h"
#include "rf/model/config.h"
#include "rf/tasks/settings.h"
#include "rf/text/tokenizer.h"

namespace rf::tasks {

// A row without padding.
struct TokenRow {
  std::vector<int32_t> ids;
  std::vector<uint8_t> types;
  std::vector<int8_t> text_index;  // 0: of the first text, 1: of the second, -1: a special token
};

struct Example {
  std::vector<TokenRow> rows;
  std::vector<int64_t> rows_of_input;  // the number of rows of each input, in order
  std::vector<int64_t> targets;        // as each task defines them; empty if not known
  double number = 0;                   // the target of regression
  // tokens: row and position of each word's first piece, {-1, -1} if it has none. answers: for every token of every row
  // its bytes of the context, {-1, -1} if none.
  std::vector<std::array<int32_t, 2>> places;

  int64_t longest_row() const;
  int64_t tokens() const;  // of all rows
};

// A model's output for an example: numbers, as each task defines them.
using Scores = std::vector<double>;

// Logits of examples, one after another: a line for each of their rows or, of a head of tokens, for each token of their
// rows.
struct Logits {
  std::span<const float> values;  // [lines, columns]
  int64_t columns = 1;

  size_t index(size_t line, size_t column) const { return line * static_cast<size_t>(columns) + column; }
  Scores line(size_t i) const;
};

// The sum of a loss's terms, such as the cross-entropies of an example's words, and its derivatives by the logits.
struct Loss {
  double sum = 0;
  int64_t terms = 0;
  std::vector<double> gradient;          // as Logits::values
  std::vector<double> sum_of_example{};  // of several: each of those that `sum` adds up
};

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
  // The loss of an example with targets; one term, unless a task has several predictions for an example.
  virtual Loss loss(const Example& example, const Logits& logits, double label_smoothing) const = 0;
  virtual Scores scores(const Example& example, const Logits& logits) const = 0;
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

// Whether a task uses this head.
bool is_head_of_task(Head head);
// Whether a head's logits are of tokens, not of rows.
bool is_of_tokens(Head head);
// The scores of each example, and the loss of all, by the logits of all.
std::vector<Scores> scores_of(const Task& task, std::span<const Example* const> examples, const Logits& logits);
Loss loss_of(const Task& task, std::span<const Example* const> examples, const Logits& logits, double label_smoothing);

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

}  // namespace rf::tasks
