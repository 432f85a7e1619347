// Randomised, shifted and augmented positions (tokens.h; R-TRN-11).
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "known_values.h"
#include "rf/io/error.h"
#include "rf/nn/linear_attention.h"
#include "tokens.h"

namespace rf::nn {

namespace {

constexpr const char* kTrainingWhere = "training_positions";

class Draws {
 public:
  explicit Draws(uint64_t state) : state_(state) {}

  // Uniform in [0, 1).
  double next() { return static_cast<double>(word() >> 11) * 0x1p-53; }
  // Uniform in [-most, most).
  double within(double most) { return (2 * next() - 1) * most; }
  uint64_t word() { return splitmix(std::exchange(state_, state_ + kSplitmixStep)); }

 private:
  uint64_t state_;
};

// `count` of the numbers 0 .. most-1 without replacement, in rising order: each number is taken with probability
// (places left) / (numbers left).
std::vector<int64_t> rising_sample(int64_t count, int64_t most, Draws& draws) {
  std::vector<int64_t> sample;
  for (int64_t x = 0; std::ssize(sample) < count; ++x) {
    const auto left = static_cast<double>(count - std::ssize(sample));
    if (draws.next() * static_cast<double>(most - x) < left) sample.push_back(x);
  }
  return sample;
}

// Maps the positions 0, 1, .. count-1 of a sequence to new ones.
std::vector<int64_t> drawn_places(int64_t count, const TrainingPositions& how, Draws& draws) {
  if (how.kind == TrainingPositions::Kind::kRandomized) {
    if (count > how.most) {
      fail(kTrainingWhere, "a sequence must have at most the {} positions of max_positions, got {}", how.most, count);
    }
    return rising_sample(count, how.most, draws);
  }
  const auto shift = static_cast<int64_t>(draws.next() * static_cast<double>(how.most + 1));
  std::vector<int64_t> places(static_cast<size_t>(count));
  for (int64_t p = 0; p < count; ++p) places[static_cast<size_t>(p)] = p + shift;
  return places;
}

// Real-valued positions of a sequence whose tokens are at `from`, in the order of `tokens`.
void augment(const std::vector<int64_t>& tokens, const int64_t* from, const TrainingPositions& how, Draws& draws,
             double* to) {
  const double shift = draws.within(how.global_shift), factor = std::exp(draws.within(std::log(how.global_scaling)));
  for (const int64_t t : tokens) {
    to[t] = factor * (static_cast<double>(from[t]) + shift + draws.within(how.local_shift));
  }
}

}  // namespace

Input with_training_positions(const Input& input, const TrainingPositions& how, DropoutKey& key) {
  const int64_t batch = input.ids_BT.size(0), tokens = input.ids_BT.size(1);
  at::Tensor given = input.positions_BT.defined() ? input.positions_BT : at::arange(tokens, at::kLong);
  if (given.dim() == 3) fail(kTrainingWhere, "positions must have one axis, got {}", given.size(2));
  const at::Tensor drawn_BT = given.expand({batch, tokens}).clone();
  check_on_cpu(drawn_BT, "positions");
  const bool is_real = how.kind == TrainingPositions::Kind::kAugmented;
  const at::Tensor real_BT = is_real ? drawn_BT.to(at::kDouble) : at::Tensor();
  const at::Tensor sequence_ids_BT =
      input.sequence_ids_BT.defined() ? input.sequence_ids_BT.to(at::kInt).contiguous() : at::Tensor();
  Draws draws(Draws(key.seed).word() ^ static_cast<uint64_t>(key.next_stream()));
  for (int64_t row = 0; row < batch; ++row) {
    int64_t* const places = drawn_BT.mutable_data_ptr<int64_t>() + row * tokens;
    const int32_t* const segments =
        sequence_ids_BT.defined() ? cpu_data<int32_t>(sequence_ids_BT, "segments") + row * tokens : nullptr;
    std::map<int32_t, std::vector<int64_t>> by_segment;  // its tokens, in order
    for (int64_t t = 0; t < tokens; ++t) by_segment[segments == nullptr ? 0 : segments[t]].push_back(t);
    for (const auto& [segment, of_segment] : by_segment) {
      if (segment < 0) continue;  // padding
      if (is_real) {
        augment(of_segment, places, how, draws, real_BT.mutable_data_ptr<double>() + row * tokens);
        continue;
      }
      int64_t last = 0;
      for (const int64_t t : of_segment) last = std::max(last, places[t]);
      const std::vector<int64_t> drawn = drawn_places(last + 1, how, draws);
      for (const int64_t t : of_segment) places[t] = drawn[static_cast<size_t>(places[t])];
    }
  }
  Input result = input;
  result.positions_BT = drawn_BT;
  result.real_positions_BT = real_BT;
  return result;
}

}  // namespace rf::nn
