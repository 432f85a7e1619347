// Searches for the continuation of a prompt (see the header).
#include "prompt_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "rf/io/error.h"

namespace rf::engine {

namespace {

// A token of the distribution p, given one of the draft's, q: that one with the probability min(1, p / q), else one of
// the distribution max(0, p - q) (Leviathan et al. 2023, arXiv 2211.17192, algorithm 1).
int32_t draw_verified(std::span<float> p, const Proposal& proposal, std::mt19937_64& random) {
  const auto at = static_cast<size_t>(proposal.token);
  if (fraction_of(random()) * proposal.probabilities[at] < p[at]) return proposal.token;
  float largest = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    p[i] = std::max(0.0f, p[i] - proposal.probabilities[i]);
    largest = std::max(largest, p[i]);
  }
  return largest == 0 ? proposal.token : draw(p, fraction_of(random()));  // 0: equal but for rounding
}

// Greedy search and sampling, whose sequences do not depend on each other.
class SampleSearch : public PromptSearch {
 public:
  explicit SampleSearch(const SearchInput& input) : PromptSearch(input) {
    for (int64_t r = 0; r < options_.return_sequences; ++r) {
      std::seed_seq seed{static_cast<uint32_t>(options_.seed), static_cast<uint32_t>(options_.seed >> 32),
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
      cache_.copy(known, sequence);
      next_.push_back({sequence, token});
    }
    std::swap(steps_, next_);
  }

  void verify(const float* logits, const Proposal& proposal) override {
    proposal_ = &proposal;
    advance(logits);
    proposal_ = nullptr;
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

  // The next token of a sequence, or -1 if the sequence ends. known: the sequence of the cache that has its tokens.
  int32_t choose(int64_t sequence, int64_t known, std::span<const float> logits) {
    Continuation& of = continuations_[static_cast<size_t>(sequence - first_sequence_)];
    Generated& result = of.result;
    const std::span<float> scores = copied(logits);
    scores_.adjust(options_, cache_.ids(known), std::ssize(result.ids), scores);
    if (options_.allowed) keep_allowed(options_.allowed(result.ids), scores);
    int32_t token = 0;
    if (options_.search == Search::kGreedy) {
      token = static_cast<int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
    } else {
      scores_.to_probabilities(options_, scores);
      token =
          proposal_ == nullptr ? draw(scores, fraction_of(of.random())) : draw_verified(scores, *proposal_, of.random);
    }
    result.ids.push_back(token);
    const double log_sum = log_sum_exp(logits);
    NewToken chosen{{token, logits[static_cast<size_t>(token)] - log_sum}};
    result.log_probability += chosen.log_probability;
    if (options_.best_tokens > 0) {
      best_.start(options_.best_tokens);
      best_.add_row(logits, 0, 0, 0);
      for (const ScoredToken& each : best_.sorted()) chosen.best.push_back({each.id, each.score - log_sum});
    }
    if (options_.on_token) options_.on_token(sequence - first_sequence_, chosen);
    if (options_.best_tokens >= 0) result.tokens.push_back(std::move(chosen));
    result.score = result.log_probability;
    result.stopped = is_stop(token) || is_end(result.ids);
    return result.stopped || std::ssize(result.ids) == options_.max_new_tokens ? -1 : token;
  }

  std::vector<Continuation> continuations_;
  std::vector<Step> next_;
  const Proposal* proposal_ = nullptr;
  BestTokens best_;
};

// The best `beams` results, ranked by the sum of log-probabilities over tokens^length_penalty.
class BeamResults {
 public:
  BeamResults(int64_t beams, double length_penalty)
      : beams_(static_cast<size_t>(beams)), length_penalty_(length_penalty) {}

  float ranked(float sum, int64_t tokens) const {
    return sum / static_cast<float>(std::pow(static_cast<double>(tokens), length_penalty_));
  }
  bool is_full() const { return results_.size() == beams_; }
  bool wants(float score) const { return !is_full() || score > results_.back().score; }
  // Adds a result that is good enough; equal results keep their order.
  void add(Generated result) {
    const auto is_above = [](double score, const Generated& other) { return score > other.score; };
    if (is_full()) results_.pop_back();
    results_.insert(std::upper_bound(results_.begin(), results_.end(), result.score, is_above), std::move(result));
  }
  std::vector<Generated> take() { return std::move(results_); }  // best first

 private:
  size_t beams_;
  double length_penalty_;
  std::vector<Generated> results_;
};

// Beam search as transformers' generate() defines it. A step takes the best candidates over all beams, by the sum of
// log-probabilities. If one of the first `beams` candidates ends, it is a result, ranked by its sum over
// tokens^length_penalty; the best unfinished candidates are the next beams. The search is over when all have ended, or
// when there are `beams` results and the best beam, ranked at its present length, is below every result.
class BeamSearch : public PromptSearch {
 public:
  explicit BeamSearch(const SearchInput& input)
      : PromptSearch(input),
        width_(static_cast<size_t>(options_.beams)),
        results_(options_.beams, options_.length_penalty) {
    beams_.push_back({.sequence = first_sequence_});
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
    int64_t sequence = 0;  // of the cache, with all tokens but the last
    float score = 0;
    double log_probability = 0;
    int64_t row = 0;  // of the logits
    double log_sum = 0;
    int32_t token = 0;  // the last
  };

  std::span<const ScoredToken> best_candidates(const float* logits) {
    best_.start(candidates_per_beam(options_) * options_.beams, never_);
    for (size_t i = 0; i < beams_.size(); ++i) {
      Beam& beam = beams_[i];
      const std::span<const float> of_beam = row(logits, beam.row);
      beam.log_sum = log_sum_exp(of_beam);
      if (!TokenScores::adjusts(options_, new_tokens_)) {
        best_.add_row(of_beam, beam.log_sum, beam.score, static_cast<int32_t>(i));
        continue;
      }
      const std::span<float> scores = copied(of_beam);
      for (float& score : scores) score = static_cast<float>(score - beam.log_sum);
      scores_.adjust(options_, cache_.ids(beam.sequence), new_tokens_, scores);
      best_.add_row(scores, 0, beam.score, static_cast<int32_t>(i));
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
    const std::span<const int32_t> known = cache_.ids(beams_[static_cast<size_t>(candidate.row)].sequence);
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

  // Gives each next beam a sequence of the cache. The first child of a parent keeps the parent's sequence; others get
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
      cache_.copy(next_[i].sequence, free);
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
  BeamResults results_;
  BestTokens best_;
};

}  // namespace

PromptSearch::PromptSearch(const SearchInput& input)
    : options_(input.options),
      cache_(input.cache),
      scores_(input.scores),
      vocab_size_(input.vocab_size),
      first_sequence_(input.first_sequence),
      never_(input.never),
      prompt_tokens_(cache_.length(first_sequence_)) {}

void PromptSearch::verify(const float* logits, const Proposal&) { advance(logits); }

std::span<float> PromptSearch::copied(std::span<const float> row) {
  row_.assign(row.begin(), row.end());
  return row_;
}

bool PromptSearch::is_stop(int32_t token) const {
  return std::find(options_.stop_ids.begin(), options_.stop_ids.end(), token) != options_.stop_ids.end();
}

bool PromptSearch::is_end(std::span<const int32_t> new_ids) const {
  if (!options_.is_end || std::ssize(new_ids) <= options_.min_new_tokens) return false;
  return options_.is_end(cache_.ids(first_sequence_).first(static_cast<size_t>(prompt_tokens_)), new_ids);
}

int64_t PromptSearch::candidates_per_beam(const GenerationOptions& options) {
  return std::max<int64_t>(2, 1 + std::ssize(options.stop_ids));
}

std::unique_ptr<PromptSearch> PromptSearch::make(const SearchInput& input) {
  if (input.options.search == Search::kBeams) return std::make_unique<BeamSearch>(input);
  return std::make_unique<SampleSearch>(input);
}

void check_length_penalty(const char* where, double length_penalty, int64_t tokens) {
  if (!std::isfinite(length_penalty)) fail(where, "length_penalty must be finite, got {}", length_penalty);
  if (!(std::pow(static_cast<double>(tokens), std::abs(length_penalty)) <= std::numeric_limits<float>::max())) {
    fail(where, "length_penalty must keep tokens^length_penalty within float32, got {} for {} tokens", length_penalty,
         tokens);
  }
}

}  // namespace rf::engine
