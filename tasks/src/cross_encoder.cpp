// Scores of pairs (rf/tasks/cross_encoder.h).
#include "rf/tasks/cross_encoder.h"

#include <algorithm>
#include <iterator>
#include <mutex>

#include "cross_encoder_files.h"
#include "model_task.h"
#include "rf/engine/schedule.h"
#include "rf/io/error.h"
#include "rf/io/finite.h"
#include "rf/io/printable.h"
#include "rf/model/foreign_models.h"
#include "rf/tasks/examples.h"

namespace rf::tasks {

namespace {

constexpr const char* kWhere = "rerank";

constexpr std::pair<const char*, ScoreActivation> kActivations[] = {{"identity", ScoreActivation::kIdentity},
                                                                    {"sigmoid", ScoreActivation::kSigmoid},
                                                                    {"tanh", ScoreActivation::kTanh},
                                                                    {"relu", ScoreActivation::kRelu}};

ModelConfig load_scoring_config(const std::string& model_dir) {
  ModelConfig config = load_any_config(model_dir);
  if (config.head() != Head::kSequenceClassification) {
    fail(kWhere, "scores of pairs need {}, got {} in {}", architecture_of(config, Head::kSequenceClassification),
         architecture_of(config, config.head()), model_dir);
  }
  return config;
}

}  // namespace

struct CrossEncoder::Impl {
  CrossEncoderFiles files;
  ModelConfig config;
  CrossEncoderInfo info;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  engine::Model model;
  mutable std::mutex mutex;  // of the encoder
  std::optional<text::BatchEncoder> encoder;

  explicit Impl(const CrossEncoderOptions& options)
      : files(read_cross_encoder_files(options.model_dir, options.note)),
        config(load_scoring_config(files.encoder_dir)),
        tokenizer(load_tokenizer(files.encoder_dir, options.load)),
        model(files.encoder_dir,
              {.precision = options.precision, .token_budget = options.batch_tokens, .warn = options.note}) {
    constexpr int64_t kNoLimit = int64_t{1} << 24;
    info.labels = model.info().labels;
    info.max_length = options.max_length.value_or(row_length(files.encoder_dir, config, kNoLimit));
    info.activation = options.activation.value_or(files.activation.value_or(default_activation(config.num_labels)));
    info.prompt = engine::prompt_of(files.prompts, options.prompt, options.prompt_name, kWhere);
    info.prompts = files.prompts.by_name;
    info.default_prompt_name = files.prompts.default_name;
    if (info.max_length < 1) fail<ArgumentError>(kWhere, "max-length must be at least 1, got {}", info.max_length);
    check_length(model, info.max_length);
    encoder.emplace(*tokenizer,
                    text::BatchOptions{.truncation = text::Truncation::kLongestFirst,
                                       .truncation_side = text::read_row_settings(files.encoder_dir).truncation_side,
                                       .max_length = info.max_length,
                                       .threads = 1});
  }

  engine::DistinctSequences tokenize(std::span<const text::TextPair> pairs) {
    std::vector<std::string> prompted;
    prompted.reserve(pairs.size());
    std::vector<text::TextPair> samples(pairs.begin(), pairs.end());
    for (text::TextPair& pair : samples) {
      if (!info.prompt.empty()) pair.first = prompted.emplace_back(info.prompt).append(pair.first);
    }
    engine::DistinctSequences sequences;
    const std::lock_guard lock(mutex);
    for (const text::Row& row : encoder->encode(samples)) sequences.add(row.tokens.ids, row.types);
    return sequences;
  }
};

CrossEncoder::CrossEncoder(const CrossEncoderOptions& options) {
  if (options.batch_tokens < 1) fail(kWhere, "batch-tokens must be at least 1, got {}", options.batch_tokens);
  impl_ = std::make_shared<Impl>(options);
}

const CrossEncoderInfo& CrossEncoder::info() const { return impl_->info; }

std::vector<float> CrossEncoder::scores(std::span<const text::TextPair> pairs,
                                        std::optional<ScoreActivation> activation,
                                        const std::function<std::string(int64_t)>& place) const {
  constexpr size_t kBlock = 512;  // pairs that are tokenized at once
  const size_t labels = impl_->info.labels.size();
  std::vector<float> scores;
  for (size_t first = 0; first < pairs.size(); first += kBlock) {
    const auto block = impl_->tokenize(pairs.subspan(first, std::min(kBlock, pairs.size() - first)));
    std::ranges::copy(block.compute(engine::logits_of(impl_->model)), std::back_inserter(scores));
  }
  io::check_finite(
      scores, static_cast<int64_t>(labels), [&](int64_t i) { return place ? place(i) : kWhere; },
      [&](int64_t i) { return place ? "logits" : fmt::format("logits of pair {}", i); });
  const ScoreActivation applied = activation.value_or(impl_->info.activation);
  for (float& score : scores) score = static_cast<float>(activated(applied, score));
  return scores;
}

ScoreActivation score_activation(const std::string& name) {
  for (const auto& [known, activation] : kActivations) {
    if (name == known) return activation;
  }
  fail<ArgumentError>(kWhere, "the activation must be identity, sigmoid, tanh or relu, got {}", io::printable(name));
}

const char* score_activation_name(ScoreActivation activation) {
  for (const auto& [known, each] : kActivations) {
    if (each == activation) return known;
  }
  return "";
}

}  // namespace rf::tasks
