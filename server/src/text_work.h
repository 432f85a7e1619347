// The computations of routes: vectors of texts and scores of pairs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "service.h"

namespace rf::server {

// The vectors of texts, stored once for equal texts.
struct Embedded {
  Memory::Share held;
  std::vector<engine::TextVectors> distinct{};
  std::vector<int64_t> sequence_of_text{};
  int64_t tokens = 0;  // of all texts, repeated texts included

  size_t texts() const { return sequence_of_text.size(); }
  const engine::TextVectors& of(size_t text) const { return distinct[static_cast<size_t>(sequence_of_text[text])]; }
};

enum class Truncate { kAsModel, kRefuse };

// Throws HttpError for a vector that is not finite, and with kRefuse, 413, for a text that the model does not read as a
// whole.
asio::awaitable<Embedded> embed(Service& service, const TextModel& model, std::vector<std::string> texts,
                                std::optional<std::string> prompt, Truncate truncate = Truncate::kAsModel,
                                std::optional<engine::TextRole> role = std::nullopt);

struct Scores {
  Memory::Share held;
  std::vector<float> values{};  // [pairs, labels]
  int64_t tokens = 0;
};
// Changes logits, [pairs, labels], to scores.
using Activate = std::function<void(const tasks::CrossEncoder& encoder, std::vector<float>& logits)>;
asio::awaitable<Scores> score(Service& service, const PairModel& model, const std::vector<text::TextPair>& pairs,
                              Activate activate);
// Scores of documents for a query, by a cross-encoder or by late interaction. raw: without the model's activation.
asio::awaitable<Scores> rank(Service& service, const ServedModel& model, std::string query,
                             std::vector<std::string> documents, bool raw);

// TEI's truncation_direction: texts are shortened at their end.
inline void no_left_truncation(const Fields& fields) { fields.one_of("truncation_direction", {"right", "Right"}); }
// The prompt that a request names by "prompt_name"; nullopt: the model's. Throws ArgumentError for an unknown one.
std::optional<std::string> prompt_of(const Fields& fields, const engine::Embedder& embedder);

}  // namespace rf::server
