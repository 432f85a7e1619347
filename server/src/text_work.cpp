// Vectors and scores for routes (text_work.h).
#include "text_work.h"

#include <fmt/format.h>

#include <algorithm>

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

// The end of the sequences from `first` on whose rows are computed together: of at least one. Rows of a vocabulary's
// weights are long, and become short vectors.
int64_t end_of_part(const engine::Computation& computation, const engine::TokenizedTexts& tokens, int64_t first) {
  constexpr int64_t kMostNumbers = int64_t{4} << 20;
  const auto row_of = [&](int64_t sequence) { return computation.row_of(tokens.offsets, sequence); };
  int64_t end = first + 1;
  while (end < tokens.sequences() && (row_of(end + 1) - row_of(first)) * computation.columns <= kMostNumbers) ++end;
  return end;
}

// Appends the vectors of sequences first .. end - 1 to `to`. rows: the rows of the same sequences.
void add_vectors(const TextModel& model, const engine::TokenizedTexts& tokens, int64_t first, int64_t end,
                 const std::vector<float>& rows, std::optional<engine::TextRole> role,
                 std::vector<engine::TextVectors>& to) {
  const engine::Computation& computation = model.computation;
  io::check_finite(
      rows, computation.columns, [](int64_t) { return "embed"; }, [](int64_t) { return "vectors"; });
  const auto place = [&](int64_t sequence) {
    const int64_t row = computation.row_of(tokens.offsets, sequence) - computation.row_of(tokens.offsets, first);
    return static_cast<size_t>(row * computation.columns);
  };
  for (int64_t i = first; i < end; ++i) {
    const auto own = std::span(rows).subspan(place(i), place(i + 1) - place(i));
    to.push_back(model.embedder.vectors(tokens, i, own, role));
  }
}

// Memory for a number in JSON per byte of its float32, including room for the growing text; for a score with its label.
constexpr int64_t kTextPerByte = 6, kBytesPerScore = 128;

int64_t bytes_of(const engine::TextVectors& vectors) {
  return std::ssize(vectors.dense) * 4 + std::ssize(vectors.tokens) * 4 + std::ssize(vectors.sparse.indices) * 8 + 64;
}

std::vector<float> max_similarities(const engine::EmbedderInfo& info, const Embedded& query,
                                    const Embedded& documents) {
  std::vector<float> scores;
  for (size_t i = 0; i < documents.texts(); ++i) {
    scores.push_back(static_cast<float>(engine::max_similarity(info, query.of(0).tokens, documents.of(i).tokens)));
  }
  return scores;
}

}  // namespace

asio::awaitable<Embedded> embed(Service& service, const TextModel& model, std::vector<std::string> texts,
                                std::optional<std::string> prompt, Truncate truncate,
                                std::optional<engine::TextRole> role) {
  const engine::Embedder& embedder = model.embedder;
  engine::TokenizedTexts tokens;
  Embedded result{.held = Memory::Share(service.memory)};
  co_await service.work.in_pool([&] {
    tokens = embedder.tokenize(views_of(texts), prompt, role);
    if (truncate == Truncate::kRefuse) check_whole(embedder, tokens, texts, prompt.value_or(embedder.info().prompt));
    result.sequence_of_text = tokens.sequence_of_text;
    for (const int64_t sequence : tokens.sequence_of_text)
      result.tokens += tokens.offsets[sequence + 1] - tokens.offsets[sequence];
  });
  std::vector<int64_t> offsets;
  for (int64_t first = 0, end = 0; first < tokens.sequences(); first = end) {
    end = end_of_part(model.computation, tokens, first);
    const engine::Tokens part = engine::slice(tokens.tokens(), first, end - first, offsets);
    Memory::Share rows_held(service.memory);
    rows_held.take(model.computation.rows_of(part) * model.computation.columns * int64_t{sizeof(float)});
    const auto place = first == 0 ? Work::Part::kFirst : Work::Part::kNext;
    const std::vector<float> rows = co_await service.work.compute(model.computation, part, place);
    co_await service.work.in_pool([&] { add_vectors(model, tokens, first, end, rows, role, result.distinct); });
    for (int64_t i = first; i < end; ++i) result.held.take(bytes_of(result.distinct[static_cast<size_t>(i)]));
  }
  int64_t text_bytes = 0;
  for (size_t i = 0; i < result.texts(); ++i) text_bytes += kTextPerByte * bytes_of(result.of(i));
  result.held.take(text_bytes);
  co_return result;
}

asio::awaitable<Scores> score(Service& service, const PairModel& model, const std::vector<text::TextPair>& pairs,
                              Activate activate) {
  Scores scores{.held = Memory::Share(service.memory)};
  scores.held.take(std::ssize(pairs) * std::ssize(model.encoder.info().labels) * kBytesPerScore);
  engine::DistinctSequences sequences;
  co_await service.work.in_pool([&] { sequences = model.encoder.tokenize(pairs); });
  const engine::Tokens tokens = sequences.tokens();
  std::vector<float> rows = co_await service.work.compute(model.computation, tokens);
  scores.tokens = std::ssize(tokens.ids);
  co_await service.work.in_pool([&] {
    scores.values = sequences.rows_of_all(model.computation, std::move(rows));
    activate(model.encoder, scores.values);
  });
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
    Scores scores{.held = Memory::Share(service.memory), .tokens = asked.tokens + found.tokens};
    co_await service.work.in_pool([&] { scores.values = max_similarities(info, asked, found); });
    co_return scores;
  }
  const PairModel& pair_model = model.pairs();
  const size_t labels = pair_model.encoder.info().labels.size();
  if (labels != 1)
    throw HttpError(http::status::bad_request,
                    fmt::format("a model that ranks must have one score, got {} labels in {}", labels, model.name()));
  Memory::Share copies(service.memory);  // of the query
  copies.take(std::ssize(documents) * std::ssize(query));
  std::vector<text::TextPair> pairs;
  for (const std::string& each : documents) pairs.push_back({query, each});
  const auto activation = raw ? std::optional(tasks::ScoreActivation::kIdentity) : std::nullopt;
  co_return co_await score(service, pair_model, pairs, [activation](const auto& encoder, std::vector<float>& logits) {
    encoder.activate(logits, activation);
  });
}

std::optional<std::string> prompt_of(const Fields& fields, const engine::Embedder& embedder) {
  const std::string name = fields.text_or("prompt_name", "");
  if (name.empty()) return std::nullopt;
  return engine::prompt_of({.by_name = embedder.info().prompts, .default_name = {}}, std::nullopt, name, "prompt_name");
}

}  // namespace rf::server
