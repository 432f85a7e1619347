// What tasks with classes share: labels and their ids, probabilities, and metrics; and the base of tasks that label a
// text or a pair of texts.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "input_rows.h"
#include "rf/tasks/task.h"

namespace rf::tasks {

// Adds a record's label. Throws Error for an empty one.
void add_label(const data::Record& record, std::string label, std::vector<std::string>& labels);
// A record's list of texts, or of labels, which may also be what data::text_of() reads. Throws Error for another value.
enum class Items { kTexts, kLabels };
std::vector<std::string> strings_of(const data::Record& record, const std::string& column, Items items);
// The labels of the training records without repetition: by value where all are integers, otherwise by their
// bytes. Throws Error, naming the file, if there is only one label.
std::vector<std::string> training_labels(std::span<const data::Record> records, std::vector<std::string> labels);
// TaskKind::learn of kinds whose records have lists of labels, in the column `labels`.
void learn_label_lists(std::span<const data::Record> records, TaskSettings& settings);

// The outputs of a model without names of labels.
void set_number_outputs(ModelConfig& config, int64_t num_labels, const char* problem_type);

// Checks the labels of task.json: at least two, none twice.
void check_labels(const std::vector<std::string>& labels, const char* task);

class Labels {
 public:
  enum class Ids { kRefused, kTaken };
  // kTaken: a text that is not a label but an integer is the id of a label.
  explicit Labels(std::vector<std::string> names, Ids ids = Ids::kRefused);
  size_t size() const { return names_.size(); }
  const std::string& name(size_t id) const { return names_[id]; }
  // Throws Error for an unknown label; `place` begins the message.
  int64_t id(const std::string& place, const std::string& label) const;
  void set_outputs(ModelConfig& config) const;  // num_labels and id2label

 private:
  std::vector<std::string> names_;
  std::map<std::string, int64_t> ids_;
  Ids number_ids_;
};

double sigmoid(double logit);
std::vector<double> softmax(std::span<const double> logits);
size_t greatest(std::span<const double> values);  // index; the first of several
nlohmann::json class_metrics_json(const std::vector<std::vector<int64_t>>& confusion);
// The first target of each example against the greatest of its scores.
std::vector<std::vector<int64_t>> class_confusion(std::span<const Scored> scored, int64_t classes);

// The fields: a text, a second one if the records contain pairs, and the target.
std::vector<TaskColumn> text_columns(const char* target);

class TextLabels : public RowTask {
 public:
  // Throws Error for fewer than two labels, with the name of the task.
  TextLabels(const TaskSettings& settings, std::shared_ptr<const text::Tokenizer> tokenizer, const char* task,
             const char* problem_type);

  void set_outputs(ModelConfig& config) const override;
  Example example(const data::Record& record, Targets targets) override;
  Scores scores(const Example& example, const Logits& logits) const override;

 protected:
  virtual std::vector<int64_t> targets_of(const data::Record& record) const = 0;
  const Labels labels_;

 private:
  const char* const problem_type_;
};

}  // namespace rf::tasks
