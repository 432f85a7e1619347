// Scores of the next token, one for each token of the vocabulary, and the options of generation that change them.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "rf/engine/generator.h"

namespace rf::engine {

// log of the sum of exp(row).
double log_sum_exp(std::span<const float> row);

// Rows of `vocab_size` logits. Throws Error, [where], for one that is not finite.
void check_logits(const char* where, std::span<const float> logits, int64_t vocab_size);

// A token and its score, of one of several rows. Better is a higher score, then an earlier row, then a lower id.
struct ScoredToken {
  float score;
  int32_t row, id;
};
inline bool is_better(const ScoredToken& a, const ScoredToken& b) {
  if (a.score != b.score) return a.score > b.score;
  return a.row != b.row ? a.row < b.row : a.id < b.id;
}

// The best `count` of the tokens that it is given.
class BestTokens {
 public:
  // never: an id that is ignored.
  void start(int64_t count, int32_t never = -1) {
    count_ = static_cast<size_t>(count);
    never_ = never;
    heap_.clear();
  }
  void add(const ScoredToken& token);
  // All tokens of a row, their scores less `subtracted`, rounded, plus `added`.
  void add_row(std::span<const float> scores, double subtracted, float added, int32_t row);
  // Best first; the next call must be start().
  std::span<const ScoredToken> sorted();

 private:
  size_t count_ = 0;
  int32_t never_ = -1;
  std::vector<ScoredToken> heap_;  // the worst first
};

// Holds the memory of the functions below.
class TokenScores {
 public:
  explicit TokenScores(int64_t vocab_size) : marks_(static_cast<size_t>(vocab_size)) {}

  // Whether adjust() may change scores.
  static bool adjusts(const GenerationOptions& options, int64_t new_tokens) {
    return options.repetition_penalty != 1 || options.presence_penalty != 0 || options.frequency_penalty != 0 ||
           !options.logit_bias.empty() || new_tokens < options.min_new_tokens;
  }
  // Applies the repetition penalty for the tokens of `ids`, then the other penalties for the last `new_tokens` ids and
  // the bias, and -infinity for stop ids before min_new_tokens. scores: logits or log-probabilities.
  void adjust(const GenerationOptions& options, std::span<const int32_t> ids, int64_t new_tokens,
              std::span<float> scores);
  // scores to probabilities after temperature, top-k and top-p.
  void to_probabilities(const GenerationOptions& options, std::span<float> scores);

 private:
  // Whether this is the first time since mark_ grew that the id is seen.
  bool is_new(int32_t id) { return std::exchange(marks_[static_cast<size_t>(id)], mark_) != mark_; }
  void start_marks();
  void keep_top_k(int64_t k, std::span<float> scores);
  void keep_top_p(double p, std::span<float> probabilities);

  std::vector<int32_t> marks_;  // of tokens that were seen: the number of the call
  int32_t mark_ = 0;
  BestTokens best_;
  std::vector<ScoredToken> candidates_;
};

// -infinity for all others.
void keep_allowed(std::span<const uint64_t> allowed, std::span<float> scores);

// In [0, 1), of the bits of a random number.
inline double fraction_of(uint64_t random) { return static_cast<double>(random >> 11) * 0x1p-53; }

// The first token at which the sum of probabilities is above `u` of their sum.
int32_t draw(std::span<const float> probabilities, double u);

}  // namespace rf::engine
