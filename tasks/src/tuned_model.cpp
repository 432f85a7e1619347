// Opening a fine-tuned model, and its logits without padding (tuned_model.h).
#include "tuned_model.h"

#include "model_task.h"
#include "rf/io/error.h"
#include "rf/io/finite.h"
#include "rf/io/warning.h"
#include "rf/tasks/examples.h"

namespace rf::tasks {

namespace {

void check_head(const std::string& model_dir, const Task& task, const TaskSettings& settings) {
  const ModelConfig config = load_config(model_dir);
  if (config.head() != task.head()) {
    fail("task", "{} must have the head of its task, {}, got {}", model_dir, architecture_of(config, task.head()),
         architecture_of(config, config.head()));
  }
  const auto labels = static_cast<int64_t>(settings.labels.size());
  if (labels > 0 && labels != config.num_labels) {
    fail("task", "{} must have a label for each output of the head, {}, got {}", model_dir, config.num_labels, labels);
  }
}

void check_length(const engine::Model& model, int64_t max_length) {
  try {
    model.check_length(max_length);
  } catch (const Error& error) {
    fail_length(max_length, error.what());
  }
}

}  // namespace

TunedModel::TunedModel(const PredictOptions& options) {
  if (options.batch_tokens < 1) fail("task", "batch-tokens must be at least 1, got {}", options.batch_tokens);
  const io::WarningScope scope(options.note);
  auto [model_dir, settings] = task_of_model(options.model_dir, options.note);
  settings_ = std::move(settings);
  if (options.max_length) settings_.max_length = *options.max_length;
  check_settings(settings_);
  rename_columns(options.columns, settings_);
  tokenizer_ = load_tokenizer(model_dir, options.load);
  task_ = task_kind(settings_.kind).make(settings_, tokenizer_);
  check_head(model_dir, *task_, settings_);
  model_.emplace(
      model_dir,
      engine::ModelOptions{.precision = options.precision, .token_budget = options.batch_tokens, .warn = options.note});
  check_length(*model_, settings_.max_length);
}

OwnLogits TunedModel::logits(std::span<const Example* const> examples, std::span<const data::Record> records) const {
  std::vector<int32_t> ids, types;
  std::vector<int64_t> offsets = {0};
  for (const Example* example : examples) {
    for (const TokenRow& row : example->rows) {
      ids.insert(ids.end(), row.ids.begin(), row.ids.end());
      types.insert(types.end(), row.types.begin(), row.types.end());
      offsets.push_back(std::ssize(ids));
    }
  }
  const size_t lines = is_of_tokens(task_->head()) ? ids.size() : offsets.size() - 1;
  OwnLogits logits{.values = {}, .columns = model_->logits_per_row()};
  logits.values.resize(lines * static_cast<size_t>(logits.columns));
  model_->logits({.ids = ids, .offsets = offsets, .types = types}, logits.values.data());
  const auto place = [&](int64_t line) {
    for (size_t i = 0;; ++i) {
      line -= is_of_tokens(task_->head()) ? examples[i]->tokens() : std::ssize(examples[i]->rows);
      if (line < 0) return records[i].place();
    }
  };
  io::check_finite(logits.values, logits.columns, place, [](int64_t) { return "logits"; });
  return logits;
}

}  // namespace rf::tasks
