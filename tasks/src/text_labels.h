// Shared by tasks that label a text or a pair of texts: fields, head, and logits as scores.
#pragma once

#include <memory>
#include <vector>

#include "classes.h"
#include "input_rows.h"

namespace rf::tasks {

// The fields: a text, a second one if the records contain pairs, and the target.
std::vector<TaskColumn> text_columns(const char* target);

class TextLabels : public Task {
 public:
  // Throws Error for fewer than two labels, with the name of the task.
  TextLabels(const TaskSettings& settings, std::shared_ptr<const text::Tokenizer> tokenizer, const char* task,
             const char* problem_type);

  Head head() const override { return Head::kSequenceClassification; }
  void set_outputs(ModelConfig& config) const override;
  Example example(const data::Record& record, Targets targets) override;
  Scores scores(const Example& example, const Logits& logits) const override;

 protected:
  virtual std::vector<int64_t> targets_of(const data::Record& record) const = 0;
  const TaskSettings& settings() const { return settings_; }
  const Labels& labels() const { return labels_; }

 private:
  const TaskSettings settings_;
  const Labels labels_;
  const char* const problem_type_;
  InputRows rows_;
};

}  // namespace rf::tasks
