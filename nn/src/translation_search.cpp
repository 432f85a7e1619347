// Beam search in batches (rf/nn/translation_search.h). A row of the decoder is a beam of a sentence; rows of finished
// sentences leave the batch.
#include "rf/nn/translation_search.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "rf/io/error.h"
#include "rf/model/beam_results.h"
#include "rf/nn/devices.h"

namespace rf::nn {

namespace {

struct TargetBeam {
  std::vector<int32_t> ids;
  float score = 0;  // sum of log-probabilities
  int64_t row = 0;  // row of the batch that computes its last token
};

// A beam extended by one token.
struct BeamCandidate {
  float score;
  size_t beam;
  int32_t id;
};

class SentenceSearch {
 public:
  SentenceSearch(const SearchOptions& options, int64_t max_tokens, int32_t end_id)
      : options_(options), end_id_(end_id), max_tokens_(max_tokens), results_(options.beams, options.length_penalty) {
    beams_.push_back({});
  }

  std::vector<TargetBeam>& beams() { return beams_; }
  bool is_done() const { return beams_.empty(); }

  // candidates: of all beams, best first.
  void advance(std::span<const BeamCandidate> candidates) {
    const auto width = static_cast<size_t>(options_.beams);
    const int64_t tokens = std::ssize(beams_[0].ids) + 1;
    const bool is_last = tokens == max_tokens_;
    std::vector<TargetBeam> next;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const BeamCandidate& candidate = candidates[i];
      const bool ends = candidate.id == end_id_;
      if (ends || is_last) {
        if (i < width) add_result(candidate, tokens, ends);
      } else if (next.size() < width) {
        next.push_back(beams_[candidate.beam]);
        next.back().ids.push_back(candidate.id);
        next.back().score = candidate.score;
      }
    }
    const bool may_improve = !next.empty() && results_.wants(results_.ranked(next[0].score, tokens));
    beams_ = is_last || !may_improve ? std::vector<TargetBeam>{} : std::move(next);
  }

  Translation best() { return std::move(results_.take().at(0)); }

 private:
  void add_result(const BeamCandidate& candidate, int64_t tokens, bool ends) {
    const float score = results_.ranked(candidate.score, tokens);
    if (!results_.wants(score)) return;
    Translation result{.ids = beams_[candidate.beam].ids, .score = score, .ended = ends};
    if (!ends) result.ids.push_back(candidate.id);
    results_.add(std::move(result));
  }

  const SearchOptions& options_;
  int32_t end_id_;
  int64_t max_tokens_;
  std::vector<TargetBeam> beams_;  // best first
  BeamResults<Translation> results_;
};

at::Tensor padded_rows(std::span<const std::vector<int32_t>> rows, int64_t pad) {
  size_t longest = 0;
  for (const std::vector<int32_t>& row : rows) longest = std::max(longest, row.size());
  const at::Tensor ids_BT = at::full({std::ssize(rows), static_cast<int64_t>(longest)}, pad, at::kLong);
  auto* to = ids_BT.mutable_data_ptr<int64_t>();
  for (const std::vector<int32_t>& row : rows) {
    std::copy(row.begin(), row.end(), to);
    to += longest;
  }
  return ids_BT;
}

// The sum of finite floats is finite in double precision.
void check_logits(const at::Tensor& logits_RV) {
  const double sum = logits_RV.sum(at::kDouble).item<double>();
  if (std::isfinite(sum)) return;
  fail("translate", "logits must be finite in float32, got a sum of {}: numbers in the model become too large", sum);
}

class BatchSearch {
 public:
  BatchSearch(TranslationModel& model, std::span<const std::vector<int32_t>> sources, const SearchOptions& options)
      : model_(model), options_(options) {
    const TranslationConfig& config = model.config();
    for (const std::vector<int32_t>& source : sources) {
      sentences_.emplace_back(options, most_tokens(std::ssize(source)), static_cast<int32_t>(config.eos_token_id));
    }
    const at::Tensor ids_BS = on_model(padded_rows(sources, config.pad_token_id));
    mask_ = ids_BS.ne(config.pad_token_id);
    states_ = model.encode(ids_BS, mask_);
  }

  std::vector<Translation> run() {
    at::Tensor target =
        on_model(at::full({std::ssize(sentences_), 1}, model_.config().decoder_start_token_id, at::kLong));
    place();
    while (true) {
      const auto [scores_RK, ids_RK] = step(target);
      advance(scores_RK, ids_RK);
      const std::vector<int64_t> parents = place();
      if (parents.empty()) break;
      target = next_target(target, parents);
    }
    std::vector<Translation> results;
    for (SentenceSearch& sentence : sentences_) results.push_back(sentence.best());
    return results;
  }

 private:
  at::Tensor on_model(const at::Tensor& x) const { return on_device(x, model_.parameters().at(0).device()); }

  // The maximum length of a translation, limited by a position table.
  int64_t most_tokens(int64_t source_tokens) const {
    constexpr double kMaxTokens = 1 << 30;
    const double by_ratio = std::floor(options_.max_ratio * static_cast<double>(source_tokens));
    const double wanted = by_ratio + static_cast<double>(options_.max_extra);
    const auto most = static_cast<int64_t>(std::clamp(wanted, 1.0, kMaxTokens));
    const int64_t rows = model_.config().max_position_embeddings;
    if (most <= rows) return most;
    try {
      model_.check_length(most);
    } catch (const Error&) {
      return rows;
    }
    return most;
  }

  // Scores and ids of the best tokens after each row, on the CPU.
  std::tuple<at::Tensor, at::Tensor> step(const at::Tensor& target_RT) {
    KeyValueCache* const cache = options_.cache == SearchOptions::Cache::kUsed ? &cache_ : nullptr;
    const at::Tensor hidden_RTC = model_.decode(target_RT, states_, mask_, cache);
    const at::Tensor logits_RV = model_.logits(hidden_RTC.select(1, -1).contiguous()).to(at::kFloat);
    check_logits(logits_RV);
    at::Tensor scores_RV = at::log_softmax(logits_RV, -1);
    scores_RV.select(1, model_.config().pad_token_id).fill_(-std::numeric_limits<float>::infinity());
    const int64_t candidates = std::min(2 * options_.beams, scores_RV.size(1) - 1);
    const auto [best_RK, ids_RK] = at::topk(scores_RV, candidates, -1);
    return {on_cpu(best_RK), on_cpu(ids_RK)};
  }

  void advance(const at::Tensor& scores_RK, const at::Tensor& ids_RK) {
    const auto scores = scores_RK.accessor<float, 2>();
    const auto ids = ids_RK.accessor<int64_t, 2>();
    for (SentenceSearch& sentence : sentences_) {
      if (sentence.is_done()) continue;
      std::vector<BeamCandidate> candidates;
      for (size_t b = 0; b < sentence.beams().size(); ++b) {
        const TargetBeam& beam = sentence.beams()[b];
        for (int64_t k = 0; k < scores.size(1); ++k) {
          candidates.push_back({beam.score + scores[beam.row][k], b, static_cast<int32_t>(ids[beam.row][k])});
        }
      }
      std::stable_sort(candidates.begin(), candidates.end(),
                       [](const BeamCandidate& a, const BeamCandidate& b) { return a.score > b.score; });
      candidates.resize(std::min(candidates.size(), static_cast<size_t>(2 * options_.beams)));
      sentence.advance(candidates);
    }
  }

  // Assigns every beam a row for the next step; returns the row that each beam continues.
  std::vector<int64_t> place() {
    std::vector<int64_t> parents;
    for (SentenceSearch& sentence : sentences_) {
      for (TargetBeam& beam : sentence.beams()) {
        parents.push_back(std::exchange(beam.row, std::ssize(parents)));
      }
    }
    return parents;
  }

  at::Tensor next_target(const at::Tensor& target_RT, const std::vector<int64_t>& parents) {
    const at::Tensor rows = on_model(at::tensor(parents, at::kLong));
    std::vector<int64_t> last;
    for (SentenceSearch& sentence : sentences_) {
      for (const TargetBeam& beam : sentence.beams()) last.push_back(beam.ids.back());
    }
    const at::Tensor last_R1 = on_model(at::tensor(last, at::kLong)).unsqueeze(1);
    if (options_.cache == SearchOptions::Cache::kUsed) {
      select_rows(cache_, rows);
      return last_R1;
    }
    states_ = states_.index_select(0, rows);
    mask_ = mask_.index_select(0, rows);
    return at::cat({target_RT.index_select(0, rows), last_R1}, 1);
  }

  TranslationModel& model_;
  const SearchOptions& options_;
  std::vector<SentenceSearch> sentences_;
  at::Tensor states_, mask_;  // of the rows; with a cache, of the first step only
  KeyValueCache cache_;
};

}  // namespace

void check_search(const SearchOptions& options, const TranslationConfig& config) {
  const int64_t most = std::min(SearchOptions::kMaxBeams, config.vocab_size);
  if (options.beams < 1 || options.beams > most) {
    fail("translate", "beams must be in 1..{}, got {}", most, options.beams);
  }
  if (!std::isfinite(options.length_penalty)) {
    fail("translate", "length_penalty must be finite, got {}", options.length_penalty);
  }
  if (!(options.max_ratio >= 0) || !std::isfinite(options.max_ratio) || options.max_extra < 0) {
    fail("translate", "max_ratio and max_extra must be at least 0, got {} and {}", options.max_ratio,
         options.max_extra);
  }
}

std::vector<Translation> translate(TranslationModel& model, std::span<const std::vector<int32_t>> sources,
                                   const SearchOptions& options) {
  check_search(options, model.config());
  std::vector<Translation> results(sources.size(), Translation{.ids = {}, .ended = true});
  std::vector<std::vector<int32_t>> rows;
  std::vector<size_t> places;
  const auto is_token = [pad = model.config().pad_token_id](int32_t id) { return id != pad; };
  for (size_t i = 0; i < sources.size(); ++i) {
    if (std::none_of(sources[i].begin(), sources[i].end(), is_token)) continue;
    rows.push_back(sources[i]);
    places.push_back(i);
  }
  if (rows.empty()) return results;
  const c10::NoGradGuard no_grad;
  model.eval();
  std::vector<Translation> found = BatchSearch(model, rows, options).run();
  for (size_t k = 0; k < places.size(); ++k) results[places[k]] = std::move(found[k]);
  return results;
}

}  // namespace rf::nn
