// Tasks of directories (see the header). Without task.json, the task is the one for which transformers' pipelines use
// the head: text-classification applies Sigmoid to one logit or several labels, no activation to a regression,
// otherwise softmax; question-answering reads windows of 384 tokens that share 128.
#include "model_task.h"

#include <algorithm>
#include <set>

#include "cross_encoder_files.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/model/foreign_models.h"
#include "rf/text/batch.h"

namespace rf::tasks {

namespace {

constexpr int64_t kAnswerTokens = 384, kAnswerStride = 128;

std::vector<std::string> labels_of(const ModelConfig& config, const std::string& where) {
  std::vector<std::string> labels;
  for (int64_t i = 0; i < config.num_labels; ++i) {
    const auto found = config.id2label.find(i);
    labels.push_back(found == config.id2label.end() ? fmt::format("LABEL_{}", i) : found->second);
  }
  const std::set<std::string> different(labels.begin(), labels.end());
  if (different.size() < labels.size()) {
    fail(where, "id2label must give each label a name of its own, got {}", fmt::join(labels, ", "));
  }
  return labels;
}

void set_sequence_task(const ModelConfig& config, const CrossEncoderFiles& files, const std::string& where,
                       TaskSettings& settings) {
  settings.columns = {{"text", "text"}, {"pair", "pair"}, {"label", "label"}};
  settings.pair_is_optional = true;
  settings.prompt = engine::prompt_of(files.prompts, {}, {}, "task");
  const bool is_regression = config.problem_type == "regression";
  if (is_regression && config.num_labels > 1) {
    fail(where, "problem_type regression must have one label, a number, got {}", config.num_labels);
  }
  if (config.num_labels == 1) {
    settings.kind = "regression";
    settings.activation = files.activation                    ? *files.activation
                          : is_regression && !files.is_stated ? ScoreActivation::kIdentity
                                                              : default_activation(1);
    return;
  }
  settings.labels = labels_of(config, where);
  settings.kind = "classification";
  if (config.problem_type != "multi_label_classification") return;
  settings.kind = "multi_label";
  settings.columns = {{"text", "text"}, {"pair", "pair"}, {"labels", "labels"}};
}

TaskSettings settings_of(const ModelConfig& config, const CrossEncoderFiles& files) {
  const std::string& model_dir = files.encoder_dir;
  const std::string where = model_dir + "/config.json";
  TaskSettings settings;
  settings.ids_are_labels = true;
  settings.max_length = row_length(model_dir, config, kMaxRowTokens);
  const text::RowSettings rows = text::read_row_settings(model_dir);
  settings.token_types = rows.token_types;
  if (rows.truncation_side == text::Side::kLeft) settings.keep = Keep::kTail;
  switch (config.head()) {
    case Head::kSequenceClassification: set_sequence_task(config, files, where, settings); break;
    case Head::kTokenClassification:
      settings.kind = "tokens";
      settings.columns = {{"tokens", "tokens"}, {"labels", "labels"}};
      settings.labels = labels_of(config, where);
      break;
    case Head::kMultipleChoice:
      settings.kind = "choice";
      settings.columns = {{"text", "text"}, {"choices", "choices"}, {"label", "label"}};
      break;
    case Head::kQuestionAnswering:
      settings.kind = "answers";
      settings.columns = {{"question", "question"}, {"context", "context"}, {"answers", "answers"}, {"start", "start"}};
      settings.keep = Keep::kHead;  // every window is read
      settings.max_length = row_length(model_dir, config, kAnswerTokens);
      settings.stride = std::min(settings.max_length / 2, kAnswerStride);
      break;
    default:
      fail("task",
           "a model without {} must have a head of classification, question answering or multiple choice, got {} in "
           "{} (roformer finetune trains one{})",
           kTaskFile, architecture_of(config, config.head()), where,
           config.head() == Head::kMaskedLm   ? ", roformer fill-mask uses this one"
           : config.head() == Head::kCausalLm ? ", roformer generate and rerank use this one"
                                              : "");
  }
  settings.columns["id"] = "id";
  return settings;
}

}  // namespace

ModelTask task_of_model(const std::string& model_dir, const std::function<void(const std::string&)>& note) {
  if (io::has_file(model_dir + "/" + kTaskFile)) return {model_dir, load_task_settings(model_dir)};
  const CrossEncoderFiles files = read_cross_encoder_files(model_dir, note);
  if (files.is_stated && files.chat_template) {
    fail("task", "a cross-encoder whose pairs are messages of a chat template is for rerank, got it in {}",
         files.encoder_dir);
  }
  return {files.encoder_dir, settings_of(load_any_config(files.encoder_dir), files)};
}

int64_t row_length(const std::string& model_dir, const ModelConfig& config, int64_t limit) {
  const int64_t of_tokenizer = text::read_row_settings(model_dir).max_length.value_or(kMaxRowTokens);
  return std::min({of_tokenizer, config.max_position_embeddings, limit});
}

}  // namespace rf::tasks
