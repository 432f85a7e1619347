// Opening fine-tuned models, and scoring (task_model.h).
#include "task_model.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>

#include "finetune_data.h"
#include "readable_length.h"
#include "rf/io/error.h"

namespace rf::train {

std::shared_ptr<const text::Tokenizer> load_task_tokenizer(const std::string& model_dir,
                                                           const text::LoadOptions& load) {
  auto tokenizer = std::make_shared<const text::Tokenizer>(text::Tokenizer::load(model_dir, load));
  tokenizer->vocabulary().require({text::SpecialRole::kPad}, "task");
  const ModelConfig config = load_config(model_dir);
  if (config.vocab_size < tokenizer->vocabulary().size()) {
    fail("task", "vocab_size of {} must be at least its vocabulary's {}, got {}", model_dir,
         tokenizer->vocabulary().size(), config.vocab_size);
  }
  if (config.is_decoder)
    fail("task", "a task needs a model that attends both ways, got the causal one in {}", model_dir);
  return tokenizer;
}

TaskModel load_task_model(const std::string& model_dir, const text::LoadOptions& load,
                          std::optional<int64_t> max_length, const std::map<std::string, std::string>& columns) {
  TaskModel model;
  model.settings = load_task_settings(model_dir);
  if (max_length) model.settings.max_length = *max_length;
  check_settings(model.settings);
  rename_columns(columns, model.settings);
  model.tokenizer = load_task_tokenizer(model_dir, load);
  model.task = task_kind(model.settings.kind).make(model.settings, model.tokenizer);
  model.model = nn::load_model(model_dir, model.task->head(), at::kFloat);
  check_length(*model.model, model.settings.max_length);
  const auto labels = static_cast<int64_t>(model.settings.labels.size());
  if (labels > 0 && labels != model.model->config().num_labels) {
    fail("task", "{} must have a label for each output of the head, {}, got {}", model_dir,
         model.model->config().num_labels, labels);
  }
  return model;
}

void check_length(const nn::Model& model, int64_t max_length) {
  const std::string reason = why_too_long(model, max_length);
  if (!reason.empty()) {
    fail("task", "max-length must be a length that the model reads, got {}: {}", max_length, reason);
  }
}

Evaluated score_examples(TaskModel& model, std::span<const Example> examples, int64_t batch, Targets targets,
                         const std::function<void(size_t)>& tick) {
  const c10::NoGradGuard no_grad;
  const bool was_training = model.model->is_training();
  model.model->eval();
  std::vector<size_t> order(examples.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return examples[a].longest_row() < examples[b].longest_row(); });
  Evaluated evaluated;
  double all_terms = 0;
  evaluated.scores.resize(examples.size());
  for (size_t begin = 0; begin < order.size();) {
    const size_t end = std::min(order.size(), begin + static_cast<size_t>(batch));
    std::vector<const Example*> chosen;
    for (size_t i = begin; i < end; ++i) chosen.push_back(&examples[order[i]]);
    const Batch tensors = make_batch(chosen, model.model->config().pad_token_id);
    const nn::Output output = model.model->forward(tensors.input);
    std::vector<Scores> scores = model.task->scores(output, tensors);
    for (size_t i = begin; i < end; ++i) evaluated.scores[order[i]] = std::move(scores[i - begin]);
    if (targets == Targets::kNeeded) {
      const auto terms = static_cast<double>(model.task->loss_terms(tensors));
      evaluated.loss += terms * model.task->loss(output, tensors, 0).item<float>();
      all_terms += terms;
    }
    begin = end;
    if (tick) tick(end);
  }
  if (all_terms > 0) evaluated.loss /= all_terms;
  model.model->train(was_training);
  return evaluated;
}

std::vector<Scored> TaskSplit::with(std::vector<Scores> scores) const {
  std::vector<Scored> scored;
  for (size_t i = 0; i < examples.size(); ++i) scored.push_back({&records[i], &examples[i], std::move(scores[i])});
  return scored;
}

}  // namespace rf::train
