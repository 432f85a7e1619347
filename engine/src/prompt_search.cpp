// Greedy search and sampling, whose sequences do not depend on each other (see the header).
#include "prompt_search.h"

#include <algorithm>
#include <random>

#include "beam_search.h"

namespace rf::engine {

namespace {

class SampleSearch : public PromptSearch {
 public:
  SampleSearch(const GenerationOptions& options, Decoder& decoder, TokenScores& scores, int64_t vocab_size,
               int64_t first_sequence)
      : PromptSearch(options, decoder, scores, vocab_size, first_sequence) {
    for (int64_t r = 0; r < options.return_sequences; ++r) {
      std::seed_seq seed{static_cast<uint32_t>(options.seed), static_cast<uint32_t>(options.seed >> 32),
                         static_cast<uint32_t>(r)};
      continuations_.push_back({.random = std::mt19937_64(seed), .result = {}});
    }
  }

  void advance(const float* logits) override {
    const bool is_first = steps_.empty();
    if (is_first) {
      for (int64_t r = 0; r < options_.return_sequences; ++r) steps_.push_back({first_sequence_ + r, 0});
    }
    next_.clear();
    for (int64_t i = 0; i < std::ssize(steps_); ++i) {
      const int64_t sequence = steps_[static_cast<size_t>(i)].sequence;
      const int64_t known = is_first ? first_sequence_ : sequence;
      const int32_t token = choose(sequence, known, row(logits, is_first ? 0 : i));
      if (token < 0) continue;
      decoder_.copy(known, sequence);
      next_.push_back({sequence, token});
    }
    std::swap(steps_, next_);
  }

  std::vector<Generated> results() override {
    std::vector<Generated> results;
    for (Continuation& each : continuations_) results.push_back(std::move(each.result));
    return results;
  }

 private:
  struct Continuation {
    std::mt19937_64 random;
    Generated result;
  };

  // The next token of a sequence; -1 where it was the last. known: the sequence of the decoder that has its tokens.
  int32_t choose(int64_t sequence, int64_t known, std::span<const float> logits) {
    Continuation& of = continuations_[static_cast<size_t>(sequence - first_sequence_)];
    Generated& result = of.result;
    const std::span<float> scores = copied(logits);
    scores_.adjust(options_, decoder_.ids(known), std::ssize(result.ids), scores);
    int32_t token = 0;
    if (options_.search == Search::kGreedy) {
      token = static_cast<int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
    } else {
      scores_.to_probabilities(options_, scores);
      token = draw(scores, static_cast<double>(of.random() >> 11) * 0x1p-53);
    }
    result.ids.push_back(token);
    if (options_.on_token) options_.on_token(token);
    result.log_probability += logits[static_cast<size_t>(token)] - log_sum_exp(logits);
    result.score = result.log_probability;
    result.stopped = is_stop(token) || is_end(result.ids);
    return result.stopped || std::ssize(result.ids) == options_.max_new_tokens ? -1 : token;
  }

  std::vector<Continuation> continuations_;
  std::vector<Step> next_;
};

}  // namespace

PromptSearch::PromptSearch(const GenerationOptions& options, Decoder& decoder, TokenScores& scores, int64_t vocab_size,
                           int64_t first_sequence)
    : options_(options),
      decoder_(decoder),
      scores_(scores),
      vocab_size_(vocab_size),
      first_sequence_(first_sequence),
      prompt_tokens_(std::ssize(decoder.ids(first_sequence))),
      row_(static_cast<size_t>(vocab_size)) {}

std::span<float> PromptSearch::copied(std::span<const float> row) {
  std::copy(row.begin(), row.end(), row_.begin());
  return row_;
}

bool PromptSearch::is_stop(int32_t token) const {
  return std::find(options_.stop_ids.begin(), options_.stop_ids.end(), token) != options_.stop_ids.end();
}

bool PromptSearch::is_end(std::span<const int32_t> new_ids) const {
  if (!options_.is_end || std::ssize(new_ids) <= options_.min_new_tokens) return false;
  return options_.is_end(decoder_.ids(first_sequence_).first(static_cast<size_t>(prompt_tokens_)), new_ids);
}

int64_t PromptSearch::candidates_per_beam(const GenerationOptions& options) {
  return std::max<int64_t>(2, 1 + std::ssize(options.stop_ids));
}

int64_t PromptSearch::candidates_of(const GenerationOptions& options) {
  return candidates_per_beam(options) * options.beams;
}

std::unique_ptr<PromptSearch> PromptSearch::make(const GenerationOptions& options, Decoder& decoder,
                                                 TokenScores& scores, int64_t vocab_size, int64_t first_sequence) {
  if (options.search == Search::kBeams) {
    return make_beam_search(options, decoder, scores, vocab_size, first_sequence);
  }
  return std::make_unique<SampleSearch>(options, decoder, scores, vocab_size, first_sequence);
}

}  // namespace rf::engine
