// A task defines the fields that it reads from a record, the model's head, how logits become a loss, scores and
// predictions, and its metrics. Each kind is one source file in tasks/kinds and one line of its table.cpp. Independent
// of torch: logits are plain numbers, computed by an engine::Model or by a model in training.
//
// A record becomes an Example: the input rows of the model, and the targets. A record may have several inputs (the
// candidates of a triple, the choices of a question). An input has one row, or several if a long text is split into
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
  std::vector<int64_t> targets;        // defined by each task; empty if unknown
  double number = 0;                   // the target of regression
  // tokens: row and position of each word's first piece, {-1, -1} for a word without pieces. answers: for every token
  // of every row, its bytes of the context, or {-1, -1}.
  std::vector<std::array<int32_t, 2>> places;

  int64_t longest_row() const;
  int64_t tokens() const;  // of all rows
};

// A model's output for an example: numbers defined by each task.
using Scores = std::vector<double>;

// Logits of consecutive examples: one line for each of their rows or, for a head of tokens, for each token of their
// rows.
struct Logits {
  std::span<const float> values;  // [lines, columns]
  int64_t columns = 1;

  size_t index(size_t line, size_t column) const { return line * static_cast<size_t>(columns) + column; }
  Scores line(size_t i) const;
};

// The sum of a loss's terms, such as the cross-entropies of an example's words, and its derivatives with respect to the
// logits.
struct Loss {
  double sum = 0;
  int64_t terms = 0;
  std::vector<double> gradient;          // as Logits::values
  std::vector<double> sum_of_example{};  // for several examples: the summands of `sum`
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
  // num_labels, id2label, problem_type, as in transformers for this use of the head.
  virtual void set_outputs(ModelConfig& config) const = 0;
  // Throws Error, naming file and line, for a record without the required fields.
  virtual Example example(const data::Record& record, Targets targets) = 0;
  // The loss of an example with targets; one term, unless a task makes several predictions per example.
  virtual Loss loss(const Example& example, const Logits& logits, double label_smoothing) const = 0;
  virtual Scores scores(const Example& example, const Logits& logits) const = 0;
  // The keys of `predict` for a record, without the keys that identify the record.
  virtual nlohmann::json prediction(const data::Record& record, const Scores& scores) const = 0;
  // By name; null for an undefined metric. Greater is better, except for "mse".
  virtual nlohmann::json metrics(std::span<const Scored> scored) const = 0;
  // Scores of a baseline that uses the targets of the training examples and no inputs: the most frequent class, the
  // mean, a guess.
  virtual std::vector<Scores> baseline(std::span<const Example> train, std::span<const Example> examples) const = 0;
  // Scores of a baseline that uses the tokens of texts without their order (bag_of_words.h); empty for tasks other than
  // classifying a text or comparing two texts.
  virtual std::vector<Scores> bag_of_words(std::span<const Example>, std::span<const Example>) const { return {}; }
  // Confusion of the classes: counts[gold][predicted]; empty for a task without classes.
  virtual std::vector<std::vector<int64_t>> confusion(std::span<const Scored>) const { return {}; }
};

// Whether a task uses this head.
bool is_head_of_task(Head head);
// Computes the scores of each example, and the loss of all, from all logits.
std::vector<Scores> scores_of(const Task& task, std::span<const Example* const> examples, const Logits& logits);
Loss loss_of(const Task& task, std::span<const Example* const> examples, const Logits& logits, double label_smoothing);

struct TaskColumn {
  const char* name;  // in --columns and task.json; also the name of the field, unless another is given
  enum class Use {
    kInput,
    kOptionalInput,  // read if the training records contain it, or if it is named
    kTarget,
  } use;
};

struct TaskKind {
  const char* name;
  const char* summary;
  std::vector<TaskColumn> columns;
  std::vector<const char*> metrics;  // that may select the best model; the default is the first metric that the task
                                     // reports
  // Reads settings from the training records, such as labels. nullptr: not needed.
  void (*learn)(std::span<const data::Record> records, TaskSettings& settings);
  std::unique_ptr<Task> (*make)(const TaskSettings& settings, std::shared_ptr<const text::Tokenizer> tokenizer);
  bool has_classes = true;  // a target is one of several classes, and label smoothing applies
};

const std::vector<TaskKind>& task_kinds();
// Throws Error for an unknown name, suggesting the most similar one.
const TaskKind& task_kind(const std::string& name);

}  // namespace rf::tasks
