// Scores of the next token (see the header).
#include "token_scores.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "rf/io/error.h"
#include "rf/rows.h"
#include "status.h"

namespace rf::engine {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

void softmax(std::span<float> row) {
  rf_softmax_args args = {};
  args.struct_size = sizeof args;
  args.dtype = RF_F32;
  args.rows = 1;
  args.columns = args.x_stride = args.y_stride = std::ssize(row);
  args.x = row.data();
  args.y = row.data();
  check_status(rf_softmax_forward(&args));
}

// Divides by the temperature. Where the largest quotient would not be a finite float, all scores are first lowered by
// the largest, which softmax does not see: in the limit the best tokens alone remain.
void divide(std::span<float> scores, double temperature) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  const double lowered = std::abs(largest / temperature) <= std::numeric_limits<float>::max() ? 0 : largest;
  for (float& score : scores) score = static_cast<float>((score - lowered) / temperature);
}

// With several independent maxima, so that the compiler vectorizes the loop.
float largest(std::span<const float> values) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, kMinusInfinity);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
  }
  for (; i < values.size(); ++i) lanes[0] = std::max(lanes[0], values[i]);
  return *std::max_element(lanes, lanes + kLanes);
}

float penalized(float score, double penalty) {
  const double result = score < 0 ? score * penalty : score / penalty;
  if (!(std::abs(result) <= std::numeric_limits<float>::max())) {
    fail<ArgumentError>("generate", "repetition_penalty must keep scores within float32, got {:g} with a score of {:g}",
                        penalty, score);
  }
  return static_cast<float>(result);
}

}  // namespace

void check_logits(const char* where, std::span<const float> logits, int64_t vocab_size) {
  constexpr uint32_t kExponent = 0x7F800000;  // of NaN and of infinity, and of no other number
  uint32_t found = 0;
  for (const float x : logits) found |= (std::bit_cast<uint32_t>(x) & kExponent) == kExponent ? 1u : 0u;
  if (found == 0) return;
  const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
  fail(where, "logits must be finite in float32, got {} for token {}: numbers in the model become too large", *bad,
       (bad - logits.begin()) % vocab_size);
}

double log_sum_exp(std::span<const float> row) {
  const int64_t target = 0;
  float loss = 0;
  double log_sum = 0;
  rf_cross_entropy_args args = {};
  args.struct_size = sizeof args;
  args.dtype = RF_F32;
  args.rows = 1;
  args.columns = args.logits_stride = std::ssize(row);
  args.logits = row.data();
  args.targets = &target;
  args.ignore_index = -1;
  args.loss = &loss;
  args.log_sum = &log_sum;
  check_status(rf_cross_entropy_forward(&args));
  return log_sum;
}

void BestTokens::add(const ScoredToken& token) {
  if (heap_.size() == count_) {
    if (!is_better(token, heap_.front())) return;
    std::pop_heap(heap_.begin(), heap_.end(), is_better);
    heap_.back() = token;
  } else {
    heap_.push_back(token);
  }
  std::push_heap(heap_.begin(), heap_.end(), is_better);
}

void BestTokens::add_row(std::span<const float> scores, double subtracted, float added, int32_t row) {
  constexpr size_t kBlock = 128;
  const auto score_of = [=](float score) { return static_cast<float>(score - subtracted) + added; };
  for (size_t begin = 0; begin < scores.size(); begin += kBlock) {
    const std::span<const float> block = scores.subspan(begin, std::min(kBlock, scores.size() - begin));
    if (heap_.size() == count_ && score_of(largest(block)) < heap_.front().score) continue;
    for (size_t i = 0; i < block.size(); ++i) {
      const float score = score_of(block[i]);
      if (heap_.size() == count_ && score < heap_.front().score) continue;
      if (const auto id = static_cast<int32_t>(begin + i); id != never_) add({score, row, id});
    }
  }
}

std::span<const ScoredToken> BestTokens::sorted() {
  std::sort_heap(heap_.begin(), heap_.end(), is_better);
  return heap_;
}

void TokenScores::start_marks() {
  if (++mark_ < std::numeric_limits<int32_t>::max()) return;
  std::fill(marks_.begin(), marks_.end(), 0);
  mark_ = 1;
}

void TokenScores::adjust(const GenerationOptions& options, std::span<const int32_t> ids, int64_t new_tokens,
                         std::span<float> scores) {
  const auto change = [&](int32_t id, double by) {
    float& score = scores[static_cast<size_t>(id)];
    score = static_cast<float>(score + by);
  };
  if (options.repetition_penalty != 1) {
    start_marks();
    for (const int32_t id : ids) {
      float& score = scores[static_cast<size_t>(id)];
      if (is_new(id)) score = penalized(score, options.repetition_penalty);
    }
  }
  if (options.presence_penalty != 0 || options.frequency_penalty != 0) {
    start_marks();
    for (const int32_t id : ids.last(static_cast<size_t>(new_tokens)))
      change(id, -options.frequency_penalty - (is_new(id) ? options.presence_penalty : 0));
  }
  for (const auto& [id, bias] : options.logit_bias) change(id, bias);
  if (new_tokens >= options.min_new_tokens) return;
  for (const int32_t id : options.stop_ids) scores[static_cast<size_t>(id)] = kMinusInfinity;
}

void keep_allowed(std::span<const uint64_t> allowed, std::span<float> scores) {
  constexpr size_t kBits = 64;
  for (size_t word = 0; word * kBits < scores.size(); ++word) {
    const uint64_t bits = word < allowed.size() ? allowed[word] : 0;
    const std::span<float> of_word = scores.subspan(word * kBits, std::min(kBits, scores.size() - word * kBits));
    if (bits == 0) {
      std::ranges::fill(of_word, kMinusInfinity);
    } else if (bits != ~uint64_t{0}) {
      for (size_t i = 0; i < of_word.size(); ++i) of_word[i] = (bits >> i & 1) != 0 ? of_word[i] : kMinusInfinity;
    }
  }
}

void TokenScores::to_probabilities(const GenerationOptions& options, std::span<float> scores) {
  if (options.temperature != 1) divide(scores, options.temperature);
  if (options.top_k > 0 && options.top_k < std::ssize(scores)) keep_top_k(options.top_k, scores);
  softmax(scores);
  if (options.top_p < 1) keep_top_p(options.top_p, scores);
}

void TokenScores::keep_top_k(int64_t k, std::span<float> scores) {
  best_.start(k);
  best_.add_row(scores, 0, 0, 0);
  const float least = best_.sorted().back().score;
  for (float& score : scores) {
    if (score < least) score = kMinusInfinity;
  }
}

void TokenScores::keep_top_p(double p, std::span<float> probabilities) {
  const auto is_worse = [](const ScoredToken& a, const ScoredToken& b) { return is_better(b, a); };
  candidates_.clear();
  for (size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] > 0) candidates_.push_back({probabilities[i], 0, static_cast<int32_t>(i)});
  }
  std::fill(probabilities.begin(), probabilities.end(), 0.0f);
  std::make_heap(candidates_.begin(), candidates_.end(), is_worse);
  double sum = 0;
  auto end = candidates_.end();
  while (end != candidates_.begin() && sum < p) {
    std::pop_heap(candidates_.begin(), end--, is_worse);
    probabilities[static_cast<size_t>(end->id)] = end->score;
    sum += end->score;
  }
  for (auto kept = end; kept != candidates_.end(); ++kept) {
    float& probability = probabilities[static_cast<size_t>(kept->id)];
    probability = static_cast<float>(probability / sum);
  }
}

int32_t draw(std::span<const float> probabilities, double u) {
  double all = 0;
  for (const float probability : probabilities) all += probability;
  const double wanted = u * all;
  double sum = 0;
  int32_t last = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] <= 0) continue;
    last = static_cast<int32_t>(i);
    sum += probabilities[i];
    if (sum > wanted) break;
  }
  return last;
}

}  // namespace rf::engine
