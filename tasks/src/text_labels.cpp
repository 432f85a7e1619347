// Labels of texts (text_labels.h).
#include "text_labels.h"

#include <utility>

#include "losses.h"

namespace rf::tasks {

std::vector<TaskColumn> text_columns(const char* target) {
  using Use = TaskColumn::Use;
  return {{"text", Use::kInput}, {"pair", Use::kOptionalInput}, {target, Use::kTarget}};
}

TextLabels::TextLabels(const TaskSettings& settings, std::shared_ptr<const text::Tokenizer> tokenizer, const char* task,
                       const char* problem_type)
    : settings_(settings),
      labels_(settings.labels, settings.ids_are_labels ? Labels::Ids::kTaken : Labels::Ids::kRefused),
      problem_type_(problem_type),
      rows_(std::move(tokenizer), settings, text::Overflow::kDropped) {
  check_labels(settings.labels, task);
}

void TextLabels::set_outputs(ModelConfig& config) const {
  labels_.set_outputs(config);
  config.problem_type = problem_type_;
}

Example TextLabels::example(const data::Record& record, Targets targets) {
  Example example;
  add_text_input(record, settings_, rows_, example);
  if (targets == Targets::kNeeded) example.targets = targets_of(record);
  return example;
}

Scores TextLabels::scores(const Example& example, const Logits& logits) const {
  return pooled(example, logits, settings_.pooling).front();
}

}  // namespace rf::tasks
