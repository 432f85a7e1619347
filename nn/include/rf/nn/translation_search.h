// Beam search over an encoder-decoder, as defined by transformers' generate(). A step takes the best candidates over
// all beams of a sentence, by the sum of log-probabilities. Of the first `beams` candidates, the ended ones become
// results, ranked by that sum over tokens^length_penalty (as in fairseq); the others continue. A sentence is done when
// it has `beams` results and no beam, ranked at its present length, is above the last result. The padding token is
// never chosen. One beam is greedy search. A source that contains only padding has an empty translation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rf/nn/translation_model.h"

namespace rf::nn {

struct SearchOptions {
  static constexpr int64_t kMaxBeams = 1024;
  int64_t beams = 4;  // from 1 to kMaxBeams and the size of the vocabulary
  double length_penalty = 0.6;
  // A translation has at most max_ratio times the tokens of its source, and max_extra more (Vaswani et al. 2017,
  // section 6.1: 50 more), its end included; at least 1.
  double max_ratio = 1;
  int64_t max_extra = 50;
  enum class Cache { kUsed, kNone } cache = Cache::kUsed;  // kNone: every step recomputes all tokens
};

struct Translation {
  std::vector<int32_t> ids;  // without the end
  double score = 0;          // sum of log-probabilities over tokens^length_penalty, the end counted
  bool ended = false;        // by its end, not by the greatest length
};

// Throws Error for options out of range.
void check_search(const SearchOptions& options, const TranslationConfig& config);

// One for each source, in order. A source is the ids of a text followed by eos_token_id; all sources form one batch.
// Sets the model to evaluation mode. Throws Error for options out of range and infinite logits, and the model's errors.
std::vector<Translation> translate(TranslationModel& model, std::span<const std::vector<int32_t>> sources,
                                   const SearchOptions& options);

}  // namespace rf::nn
