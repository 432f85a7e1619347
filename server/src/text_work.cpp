// Vectors and scores for routes (text_work.h).
#include "text_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "rf/io/finite.h"

namespace rf::server {

namespace {

std::vector<std::string_view> views_of(const std::vector<std::string>& texts) { return {texts.begin(), texts.end()}; }

// A text as long as the model reads may have been longer.
void check_whole(const engine::Embedder& embedder, const engine::TokenizedTexts& tokens,
                 const std::vector<std::string>& texts, const std::string& prompt) {
  for (size_t i = 0; tokens.full_texts > 0 && i < texts.size(); ++i) {
    const size_t size = embedder.tokenizer().encode_with_specials(prompt + texts[i]).size();
    if (std::cmp_greater(size, embedder.info().max_length))
      throw HttpError(http::status::payload_too_large,
                      fmt::format("a text must have at most {} tokens if truncate is false, got {} in text {}",
                                  embedder.info().max_length, size, i));
  }
}

std::vector<float> max_similarities(const TextModel& queries, const Embedded& query, const TextModel& model,
                                    const Embedded& documents) {
  const std::vector<float> asked = vectors_of(queries, query, 0).tokens;
  std::vector<float> scores;
  for (size_t i = 0; i < documents.texts(); ++i) {
    const std::vector<float> found = vectors_of(model, documents, i).tokens;
    scores.push_back(static_cast<float>(engine::max_similarity(model.embedder.info(), asked, found)));
  }
  return scores;
}

}  // namespace

engine::TextVectors vectors_of(const TextModel& model, const Embedded& embedded, size_t text) {
  const int64_t sequence = embedded.tokens.sequence_of_text[text], columns = model.computation.columns;
  const auto row = [&](int64_t s) { return model.computation.row_of(embedded.tokens.offsets, s) * columns; };
  const auto begin = static_cast<size_t>(row(sequence)), end = static_cast<size_t>(row(sequence + 1));
  return model.embedder.vectors(embedded.tokens, sequence, std::span(embedded.rows).subspan(begin, end - begin),
                                embedded.role);
}

asio::awaitable<Embedded> embed(Service& service, const TextModel& model, std::vector<std::string> texts,
                                std::optional<std::string> prompt, Truncate truncate,
                                std::optional<engine::TextRole> role) {
  const engine::Embedder& embedder = model.embedder;
  Embedded result;
  result.role = role;
  co_await service.work.in_pool([&] {
    result.tokens = embedder.tokenize(views_of(texts), prompt, role);
    if (truncate == Truncate::kRefuse)
      check_whole(embedder, result.tokens, texts, prompt.value_or(embedder.info().prompt));
    for (const int64_t sequence : result.tokens.sequence_of_text)
      result.total_tokens += result.tokens.offsets[sequence + 1] - result.tokens.offsets[sequence];
  });
  result.rows = co_await service.work.compute(model.computation, result.tokens.tokens());
  io::check_finite(
      result.rows, model.computation.columns, [](int64_t) { return "embed"; }, [](int64_t) { return "vectors"; });
  co_return result;
}

asio::awaitable<Scores> score(Service& service, const PairModel& model, const std::vector<text::TextPair>& pairs,
                              std::optional<tasks::ScoreActivation> activation) {
  engine::DistinctSequences sequences;
  co_await service.work.in_pool([&] { sequences = model.encoder.tokenize(pairs); });
  const engine::Tokens tokens = sequences.tokens();
  std::vector<float> rows = co_await service.work.compute(model.computation, tokens);
  Scores scores{sequences.rows_of_all(model.computation, std::move(rows)), std::ssize(tokens.ids)};
  model.encoder.activate(scores.values, activation);
  co_return scores;
}

asio::awaitable<Scores> rank(Service& service, const ServedModel& model, std::string query,
                             std::vector<std::string> documents, bool raw) {
  if (model.is_late_interaction()) {
    const TextModel& texts = model.texts(engine::VectorKind::kTokens);
    const engine::EmbedderInfo& info = texts.embedder.info();
    const auto& prompts = info.prompts;
    const auto named = prompts.find("query");
    std::optional<std::string> prompt;
    if (named != prompts.end()) prompt = named->second;
    std::vector<std::string> queries(1, std::move(query));
    const Embedded asked = co_await embed(service, model.queries(), std::move(queries), std::move(prompt),
                                          Truncate::kAsModel, engine::TextRole::kQuery);
    const Embedded found = co_await embed(service, texts, std::move(documents), std::nullopt);
    co_return Scores{max_similarities(model.queries(), asked, texts, found), asked.total_tokens + found.total_tokens};
  }
  const PairModel& pair_model = model.pairs();
  const size_t labels = pair_model.encoder.info().labels.size();
  if (labels != 1)
    throw HttpError(http::status::bad_request,
                    fmt::format("a model that ranks must have one score, got {} labels in {}", labels, model.name()));
  std::vector<text::TextPair> pairs;
  for (const std::string& each : documents) pairs.push_back({query, each});
  using tasks::ScoreActivation;
  co_return co_await score(service, pair_model, pairs, raw ? std::optional(ScoreActivation::kIdentity) : std::nullopt);
}

std::optional<std::string> prompt_of(const Fields& fields, const engine::Embedder& embedder) {
  const std::string name = fields.text_or("prompt_name", "");
  if (name.empty()) return std::nullopt;
  return engine::prompt_of({.by_name = embedder.info().prompts, .default_name = {}}, std::nullopt, name, "prompt_name");
}

std::string json_of(std::span<const float> values) {
  fmt::memory_buffer text;
  text.push_back('[');
  for (const float value : values) {
    if (text.size() > 1) text.push_back(',');
    fmt::format_to(fmt::appender(text), "{}", value);
  }
  text.push_back(']');
  return fmt::to_string(text);
}

std::string base64_of(std::span<const float> values) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto bytes = std::as_bytes(values);
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < count ? std::to_integer<uint32_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) text += k <= count ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

}  // namespace rf::server
