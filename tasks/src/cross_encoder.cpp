// Scores of pairs (rf/tasks/cross_encoder.h).
#include "rf/tasks/cross_encoder.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>

#include "classes.h"
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

ModelConfig load_scoring_config(const std::string& model_dir, bool generates) {
  ModelConfig config = load_any_config(model_dir);
  const Head wanted = generates ? Head::kCausalLm : Head::kSequenceClassification;
  if (config.head() != wanted) {
    fail(kWhere, "scores of pairs need {}, got {} in {}", architecture_of(config, wanted),
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
  text::RowSettings rows;
  bool cuts_left;
  mutable std::mutex mutex;  // of the encoder
  std::optional<text::BatchEncoder> encoder;

  explicit Impl(const CrossEncoderOptions& options)
      : files(read_cross_encoder_files(options.model_dir, options.note)),
        config(load_scoring_config(files.encoder_dir, files.generates)),
        tokenizer(load_tokenizer(files.encoder_dir, options.load)),
        model(files.encoder_dir, {.precision = options.precision,
                                  .token_budget = options.batch_tokens,
                                  .warn = options.note,
                                  .adapter = options.adapter}),
        rows(text::read_row_settings(files.encoder_dir)),
        cuts_left(rows.truncation_side == text::Side::kLeft) {
    info.labels = files.generates ? std::vector<std::string>{"LABEL_0"} : model.info().labels;
    if (files.generates) check_score();
    info.max_length =
        options.max_length.value_or(files.max_length.value_or(row_length(files.encoder_dir, config, kMaxRowTokens)));
    info.activation =
        options.activation.value_or(files.activation.value_or(default_activation(std::ssize(info.labels))));
    info.prompt = engine::prompt_of(files.prompts, options.prompt, options.prompt_name, kWhere);
    if (files.chat_template) check_template();
    info.prompts = files.prompts.by_name;
    info.default_prompt_name = files.prompts.default_name;
    if (info.max_length < 1) fail<ArgumentError>(kWhere, "max-length must be at least 1, got {}", info.max_length);
    check_length(model, info.max_length);
    encoder.emplace(*tokenizer,
                    text::BatchOptions{.truncation = text::Truncation::kLongestFirst,
                                       .truncation_side = cuts_left ? text::Side::kLeft : text::Side::kRight,
                                       .max_length = info.max_length,
                                       .threads = 1});
  }

  // The tokens of the score, by default "yes" and "no".
  void check_score() {
    const auto id = [&](const char* word) {
      const int32_t found = tokenizer->vocabulary().find(word);
      if (found < 0) fail(kWhere, "a language model that scores pairs must have the token {}, got none", word);
      return int64_t{found};
    };
    if (!files.score) files.score = {.yes = id("yes"), .no = id("no")};
    const int64_t largest = std::max(files.score->yes, files.score->no.value_or(0));
    if (largest >= config.vocab_size)
      fail(kWhere, "tokens of LogitScore must be below vocab_size, {}, got {}", config.vocab_size, largest);
  }

  // A template for chats may ignore the roles of a pair.
  void check_template() const {
    const std::string query = "the query", document = "the document";
    const std::string text = message(info.prompt, query, document);
    if (text.find(query) == std::string::npos || text.find(document) == std::string::npos) {
      fail(files.encoder_dir, "the chat template of a reranker must contain the messages query and document, got {}",
           io::printable(text));
    }
  }

  std::string message(const std::string& prompt, std::string_view query, std::string_view document) const {
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();
    if (!prompt.empty()) messages.push_back({{"role", "system"}, {"content", prompt}});
    messages.push_back({{"role", "query"}, {"content", query}});
    messages.push_back({{"role", "document"}, {"content", document}});
    return files.chat_template->render(
        text::chat_variables(*tokenizer, std::move(messages), text::GenerationPrompt::kNone));
  }

  text::Encoding encode_message(const std::string& prompt, std::string_view query, std::string_view document) const {
    text::Encoding tokens;
    tokenizer->encode(message(prompt, query, document), tokens);
    return tokens;
  }

  // The template's tokens after the texts: the common end of the tokens of two pairs.
  std::vector<int32_t> end_of_template(const std::string& prompt) const {
    const std::vector<int32_t> one = encode_message(prompt, "0", "0").ids,
                               other = encode_message(prompt, "1 2 3 4", "1 2 3 4").ids;
    const auto [first, _] = std::mismatch(one.rbegin(), one.rend(), other.rbegin(), other.rend());
    const auto shorter = std::min(one.size(), other.size());
    if (static_cast<size_t>(first - one.rbegin()) == shorter) return {};
    return {first.base(), one.end()};
  }

  // Pairs as messages. As in sentence-transformers, truncation keeps the end of the template.
  void add_messages(std::span<const text::TextPair> pairs, const std::string& prompt,
                    engine::DistinctSequences& to) const {
    const std::vector<int32_t> template_end = end_of_template(prompt);
    const auto most = static_cast<size_t>(info.max_length);
    for (const text::TextPair& pair : pairs) {
      std::vector<int32_t> ids = encode_message(prompt, pair.first, pair.second.value_or("")).ids;
      if (ids.size() > most && cuts_left) ids.erase(ids.begin(), ids.end() - info.max_length);
      ids.resize(std::min(ids.size(), most));
      if (ids.size() == most) {
        const auto kept = std::min<int64_t>(std::ssize(template_end), info.max_length);
        std::copy_n(template_end.end() - kept, kept, ids.end() - kept);
      }
      to.add(ids, {});
    }
  }

  engine::Computation computation() const {
    if (!files.generates) return engine::logits_of(model);
    return {.run = [this](const engine::Tokens& tokens, float* out) { score(tokens, out); }, .columns = 1};
  }

  void score(const engine::Tokens& tokens, float* out) const {
    const auto columns = static_cast<size_t>(config.vocab_size);
    std::vector<int64_t> last;
    for (size_t i = 1; i < tokens.offsets.size(); ++i) last.push_back(tokens.offsets[i] - 1);
    std::vector<float> logits(last.size() * columns);
    model.vocabulary_logits(tokens, last, logits.data());
    for (size_t i = 0; i < last.size(); ++i) {
      const float* const row = logits.data() + i * columns;
      out[i] = row[files.score->yes] - (files.score->no ? row[*files.score->no] : 0);
    }
  }

  engine::DistinctSequences tokenize(std::span<const text::TextPair> pairs, const std::string& prompt) {
    if (files.chat_template) {
      engine::DistinctSequences sequences;
      add_messages(pairs, prompt, sequences);
      return sequences;
    }
    std::vector<std::string> prompted;
    prompted.reserve(pairs.size());
    std::vector<text::TextPair> samples(pairs.begin(), pairs.end());
    for (text::TextPair& pair : samples) {
      if (!prompt.empty()) pair.first = prompted.emplace_back(prompt).append(pair.first);
    }
    engine::DistinctSequences sequences;
    const std::lock_guard lock(mutex);
    for (const text::Row& row : encoder->encode(samples))
      sequences.add(row.tokens.ids, rows.token_types ? std::span(row.types) : std::span<const uint8_t>());
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
                                        const std::function<std::string(int64_t)>& place,
                                        const std::optional<std::string>& prompt) const {
  constexpr size_t kBlock = 512;  // pairs that are tokenized together
  std::vector<float> scores;
  for (size_t first = 0; first < pairs.size(); first += kBlock) {
    const auto block = tokenize(pairs.subspan(first, std::min(kBlock, pairs.size() - first)), prompt);
    std::ranges::copy(block.compute(computation()), std::back_inserter(scores));
  }
  activate(scores, activation, place);
  return scores;
}

engine::DistinctSequences CrossEncoder::tokenize(std::span<const text::TextPair> pairs,
                                                 const std::optional<std::string>& prompt) const {
  return impl_->tokenize(pairs, prompt.value_or(impl_->info.prompt));
}

engine::Computation CrossEncoder::computation() const { return impl_->computation(); }

const text::Tokenizer& CrossEncoder::tokenizer() const { return *impl_->tokenizer; }

void CrossEncoder::to_probabilities(std::vector<float>& logits) const {
  const int64_t labels = std::ssize(impl_->info.labels);
  if (labels == 1 || impl_->model.info().problem_type == "multi_label_classification")
    return activate(logits, ScoreActivation::kSigmoid);
  activate(logits, ScoreActivation::kIdentity);
  for (auto row = logits.begin(); row != logits.end(); row += labels)
    std::ranges::copy(softmax(std::vector<double>(row, row + labels)), row);
}

void CrossEncoder::activate(std::vector<float>& logits, std::optional<ScoreActivation> activation,
                            const std::function<std::string(int64_t)>& place) const {
  io::check_finite(
      logits, std::ssize(impl_->info.labels), [&](int64_t i) { return place ? place(i) : kWhere; },
      [&](int64_t i) { return place ? "logits" : fmt::format("logits of pair {}", i); });
  const ScoreActivation applied = activation.value_or(impl_->info.activation);
  for (float& logit : logits) logit = static_cast<float>(activated(applied, logit));
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
