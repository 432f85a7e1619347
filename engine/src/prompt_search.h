// The search that continues one prompt or translates one sentence: chooses the next tokens of its sequences from the
// logits of their last tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rf/engine/generator.h"
#include "sequence_cache.h"
#include "token_scores.h"

namespace rf::engine {

// The objects that a search uses; they must outlive it. The search owns sequences_of(options) sequences of the cache,
// from first_sequence on; the first of its sequences holds the prompt.
struct SearchInput {
  const GenerationOptions& options;
  SequenceCache& cache;
  TokenScores& scores;
  int64_t vocab_size, first_sequence;
  int32_t never = -1;  // a token that beam search does not choose; -1: none
};

// A token that a draft proposed, and the distribution that it was drawn from, [vocab_size]; empty with greedy search.
struct Proposal {
  int32_t token;
  std::vector<float> probabilities;
};

class PromptSearch {
 public:
  struct Step {
    int64_t sequence;  // of the cache
    int32_t token;
  };

  // The search for `options.search`.
  static std::unique_ptr<PromptSearch> make(const SearchInput& input);
  static int64_t sequences_of(const GenerationOptions& options) {
    return options.search == Search::kBeams ? options.beams : options.return_sequences;
  }
  // Candidates per beam that a step of beam search needs, so that `beams` continue if all others end.
  static int64_t candidates_per_beam(const GenerationOptions& options);
  virtual ~PromptSearch() = default;

  // The tokens to append to the cache, by ascending sequence; empty: the search is over.
  std::span<const Step> steps() const { return steps_; }
  // logits: [steps().size(), vocab_size] after the tokens of steps(); in the first call one row, after the prompt.
  virtual void advance(const float* logits) = 0;
  // The same with a proposed token, for greedy search and sampling: chooses it, or another token in its place.
  virtual void verify(const float* logits, const Proposal& proposal);
  virtual std::vector<Generated> results() = 0;

 protected:
  explicit PromptSearch(const SearchInput& input);

  std::span<const float> row(const float* logits, int64_t index) const {
    return {logits + index * vocab_size_, static_cast<size_t>(vocab_size_)};
  }
  // A row to be changed.
  std::span<float> copied(std::span<const float> row);
  bool is_stop(int32_t token) const;
  bool is_end(std::span<const int32_t> new_ids) const;

  const GenerationOptions& options_;
  SequenceCache& cache_;
  TokenScores& scores_;
  int64_t vocab_size_, first_sequence_;
  int32_t never_;
  int64_t prompt_tokens_;
  std::vector<Step> steps_;

 private:
  std::vector<float> row_;
};

// Throws Error if the scores of `tokens` tokens would leave the range of float32.
void check_length_penalty(const char* where, double length_penalty, int64_t tokens);

}  // namespace rf::engine
