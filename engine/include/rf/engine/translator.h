// Translation by an encoder-decoder (docs/translation.md), for which beam search is defined by transformers'
// generate(). A step takes the best candidates over all beams of a sentence, by the sum of log-probabilities. Of the
// first `beams` candidates, the ended ones become results, ranked by that sum over tokens^length_penalty (as in
// fairseq); the others continue. A sentence is done when it has `beams` results and no beam, ranked at its present
// length, is above the last result. The padding token is never chosen. One beam is greedy search. Does not use PyTorch.
//
// The result of a source depends only on the model, the source and the options, not on other sources of the call or the
// number of threads. Several threads may use a Translator at the same time.
//
// Throws std::runtime_error, whose text reads "[where] rule, got value", for files and arguments that break a rule, and
// std::bad_alloc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rf/engine/model.h"

namespace rf::engine {

struct TranslatorOptions {
  Precision precision = Precision::kFloat32;
  // Takes warnings, each a line; without it they are dropped.
  std::function<void(const std::string&)> warn{};
};

struct TranslatorInfo {
  int64_t vocab_size = 0, max_position_embeddings = 0;
  int64_t pad_token_id = 0, eos_token_id = 0;
};

struct TranslationOptions {
  static constexpr int64_t kMaxBeams = 1024;
  int64_t beams = 4;  // from 1 to kMaxBeams and the size of the vocabulary
  double length_penalty = 0.6;
  // A translation has at most max_ratio times the tokens of its source, and max_extra more (Vaswani et al. 2017,
  // section 6.1: 50 more), its end included; at least 1, and at most what the position encoding reads.
  double max_ratio = 1;
  int64_t max_extra = 50;
  int64_t batch_tokens = 4096;                             // computed together: sources * longest source * beams
  enum class Cache { kUsed, kNone } cache = Cache::kUsed;  // kNone: every step recomputes all tokens, for comparison
  std::function<void(int64_t)> done{};                     // receives the number of finished sources
};

struct Translation {
  std::vector<int32_t> ids;  // without the end
  double score = 0;          // sum of log-probabilities over tokens^length_penalty, the end counted
  bool ended = true;         // by its end, not by the greatest length
};

class RF_ENGINE_API Translator {
 public:
  explicit Translator(const std::string& model_dir, const TranslatorOptions& options = {});
  ~Translator();
  Translator(Translator&&) noexcept;
  Translator& operator=(Translator&&) noexcept;

  const TranslatorInfo& info() const;
  // Throws Error for options out of range.
  void check(const TranslationOptions& options) const;
  // Throws Error if the model does not read sources of `tokens` (>= 1) tokens.
  void check_source_length(int64_t tokens) const;
  // One for each source, in order. A source is the ids of a text followed by eos_token_id. A source without a token,
  // or with padding alone, has the empty translation. Throws Error for logits that are not finite.
  std::vector<Translation> translate(std::span<const std::vector<int32_t>> sources,
                                     const TranslationOptions& options = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::engine
