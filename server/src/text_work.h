// The computations of routes: vectors of texts, scores of pairs, and their JSON.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "service.h"

namespace rf::server {

// Texts with the rows of their sequences.
struct Embedded {
  engine::TokenizedTexts tokens{};
  std::vector<float> rows{};
  std::optional<engine::TextRole> role{};
  int64_t total_tokens = 0;  // of all texts, equal ones counted each

  size_t texts() const { return tokens.sequence_of_text.size(); }
};
engine::TextVectors vectors_of(const TextModel& model, const Embedded& embedded, size_t text);

enum class Truncate { kAsModel, kRefuse };

// Throws HttpError for a vector that is not finite, and with kRefuse, 413, for a text that the model does not read as a
// whole.
asio::awaitable<Embedded> embed(Service& service, const TextModel& model, std::vector<std::string> texts,
                                std::optional<std::string> prompt, Truncate truncate = Truncate::kAsModel,
                                std::optional<engine::TextRole> role = std::nullopt);

struct Pairs {
  std::string first;
  std::vector<std::string> seconds;
};
struct Scores {
  std::vector<float> values;  // [pairs, labels]
  int64_t tokens = 0;
};
asio::awaitable<Scores> score(Service& service, const PairModel& model, const std::vector<text::TextPair>& pairs,
                              std::optional<tasks::ScoreActivation> activation = std::nullopt);
// Of documents for a query, by a cross-encoder or by late interaction. raw: without the model's activation.
asio::awaitable<Scores> rank(Service& service, const ServedModel& model, std::string query,
                             std::vector<std::string> documents, bool raw);

// The prompt that a request names by "prompt_name"; nullopt: the model's. Throws ArgumentError for an unknown one.
std::optional<std::string> prompt_of(const Fields& fields, const engine::Embedder& embedder);

// "[0.1,0.2]", with the digits of the command line.
std::string json_of(std::span<const float> values);
std::string base64_of(std::span<const float> values);

}  // namespace rf::server
