// Beam search over an encoder-decoder, as transformers' generate() defines it: a step takes the best candidates over
// all beams of a sentence, by the sum of log-probabilities; those of the first `beams` that end are results, ranked by
// that sum over tokens^length_penalty (fairseq's rule, too), the others go on. A sentence is done when there are
// `beams` results and none of its beams, ranked at their present length, is above the last of them. The token of
// padding is never chosen. One beam is greedy search. A source without a token but padding has an empty translation.
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
  enum class Cache { kUsed, kNone } cache = Cache::kUsed;  // kNone: every step computes all tokens again
};

struct Translation {
  std::vector<int32_t> ids;  // without the end
  double score = 0;          // sum of log-probabilities over tokens^length_penalty, the end counted
  bool ended = false;        // by its end, not by the greatest length
};

// Throws Error for options out of range.
void check_search(const SearchOptions& options, const TranslationConfig& config);

// One for each source, in order. A source is the ids of a text with eos_token_id behind them; all are one batch. Sets
// the model to evaluation mode. Throws Error for options out of range and infinite logits, and as the model does.
std::vector<Translation> translate(TranslationModel& model, std::span<const std::vector<int32_t>> sources,
                                   const SearchOptions& options);

}  // namespace rf::nn
