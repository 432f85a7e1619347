// Beam search as transformers' generate() defines it. A step takes the best candidates over all beams, by the sum of
// log-probabilities. If one of the first `beams` candidates ends, it is a result, ranked by its sum over
// tokens^length_penalty; the best unfinished candidates are the next beams. The search is over when all have ended, or
// when there are `beams` results and the best beam, ranked at its present length, is below all of them.
#include "beam_search.h"

#include <algorithm>

#include "rf/model/beam_results.h"

namespace rf::engine {

namespace {

class BeamSearch : public PromptSearch {
 public:
  BeamSearch(const GenerationOptions& options, Decoder& decoder, TokenScores& scores, int64_t vocab_size,
             int64_t first_sequence)
      : PromptSearch(options, decoder, scores, vocab_size, first_sequence),
        width_(static_cast<size_t>(options.beams)),
        results_(options.beams, options.length_penalty) {
    beams_.push_back({.sequence = first_sequence});
  }

  void advance(const float* logits) override {
    const std::span<const ScoredToken> candidates = best_candidates(logits);
    ++new_tokens_;
    const bool is_last = new_tokens_ == options_.max_new_tokens;
    next_.clear();
    for (size_t i = 0; i < candidates.size(); ++i) {
      const ScoredToken& candidate = candidates[i];
      const bool stops = is_stop(candidate.id) || (options_.is_end && is_end(new_ids(candidate)));
      if (!stops && !is_last) {
        if (next_.size() < width_) next_.push_back(continued(candidate, logits));
      } else if (i < width_) {
        add_result(candidate, logits, stops);
      }
    }
    steps_.clear();
    if (is_last || !may_improve()) return;
    place();
  }

  std::vector<Generated> results() override {
    std::vector<Generated> best = results_.take();
    best.resize(static_cast<size_t>(options_.return_sequences));
    return best;
  }

 private:
  struct Beam {
    int64_t sequence = 0;  // of the decoder, with its tokens but for the last
    float score = 0;
    double log_probability = 0;
    int64_t row = 0;  // of the logits
    double log_sum = 0;
    int32_t token = 0;  // the last
  };

  std::span<const ScoredToken> best_candidates(const float* logits) {
    best_.start(candidates_of(options_));
    for (size_t i = 0; i < beams_.size(); ++i) {
      Beam& beam = beams_[i];
      const std::span<float> scores = copied(row(logits, beam.row));
      beam.log_sum = log_sum_exp(scores);
      for (float& score : scores) score = static_cast<float>(score - beam.log_sum);
      scores_.adjust(options_, decoder_.ids(beam.sequence), new_tokens_, scores);
      best_.add_row(scores, beam.score, static_cast<int32_t>(i));
    }
    return best_.sorted();
  }

  double log_probability(const ScoredToken& candidate, const float* logits) const {
    const Beam& parent = beams_[static_cast<size_t>(candidate.row)];
    return parent.log_probability + row(logits, parent.row)[static_cast<size_t>(candidate.id)] - parent.log_sum;
  }

  Beam continued(const ScoredToken& candidate, const float* logits) const {
    return {.sequence = beams_[static_cast<size_t>(candidate.row)].sequence,
            .score = candidate.score,
            .log_probability = log_probability(candidate, logits),
            .token = candidate.id};
  }

  std::vector<int32_t> new_ids(const ScoredToken& candidate) const {
    const std::span<const int32_t> known = decoder_.ids(beams_[static_cast<size_t>(candidate.row)].sequence);
    std::vector<int32_t> ids(known.begin() + prompt_tokens_, known.end());
    ids.push_back(candidate.id);
    return ids;
  }

  void add_result(const ScoredToken& candidate, const float* logits, bool stopped) {
    const float score = results_.ranked(candidate.score, new_tokens_);
    if (!results_.wants(score)) return;
    results_.add({.ids = new_ids(candidate),
                  .log_probability = log_probability(candidate, logits),
                  .score = score,
                  .stopped = stopped});
  }

  bool may_improve() const {
    if (next_.empty()) return false;  // is_end has ended all candidates
    if (results_.is_full() && options_.stop_when_full) return false;
    return results_.wants(results_.ranked(next_[0].score, new_tokens_));
  }

  // Gives each next beam a sequence of the decoder. The first child of a parent keeps the parent's sequence; others get
  // a copy in a sequence without a successor.
  void place() {
    const auto is_taken = [&](int64_t sequence, size_t count) {
      return std::any_of(next_.begin(), next_.begin() + static_cast<std::ptrdiff_t>(count),
                         [&](const Beam& beam) { return beam.sequence == sequence; });
    };
    copies_.clear();
    for (size_t i = 0; i < next_.size(); ++i) {
      if (is_taken(next_[i].sequence, i)) copies_.push_back(i);
    }
    int64_t free = first_sequence_;
    for (const size_t i : copies_) {
      while (is_taken(free, next_.size())) ++free;
      decoder_.copy(next_[i].sequence, free);
      next_[i].sequence = free;
    }
    std::swap(beams_, next_);
    for (const Beam& beam : beams_) steps_.push_back({beam.sequence, beam.token});
    std::sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) { return a.sequence < b.sequence; });
    for (Beam& beam : beams_) {
      beam.row =
          std::find_if(steps_.begin(), steps_.end(), [&](const Step& step) { return step.sequence == beam.sequence; }) -
          steps_.begin();
    }
  }

  size_t width_;
  int64_t new_tokens_ = 0;
  std::vector<Beam> beams_, next_;  // best first
  std::vector<size_t> copies_;
  BeamResults<Generated> results_;
  BestTokens best_;
};

}  // namespace

std::unique_ptr<PromptSearch> make_beam_search(const GenerationOptions& options, Decoder& decoder, TokenScores& scores,
                                               int64_t vocab_size, int64_t first_sequence) {
  return std::make_unique<BeamSearch>(options, decoder, scores, vocab_size, first_sequence);
}

}  // namespace rf::engine
