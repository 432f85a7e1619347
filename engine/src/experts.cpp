// A mixture of experts (see the header).
#include "experts.h"

#include <algorithm>
#include <cmath>

namespace rf::engine {

namespace {

// The probabilities of the greatest `count` scores among all, of equal ones the first; 0 for the others.
void keep_greatest(std::span<float> scores, int64_t count) {
  const float most = *std::ranges::max_element(scores);
  double sum = 0;
  for (const float each : scores) sum += std::exp(static_cast<double>(each) - most);
  std::vector<float> order(scores.begin(), scores.end());
  std::ranges::nth_element(order, order.begin() + count - 1, std::greater());
  const float least = order[static_cast<size_t>(count - 1)];
  int64_t ties = count - std::ranges::count_if(scores, [&](float each) { return each > least; });
  for (float& each : scores) {
    const bool kept = each > least || (each == least && ties-- > 0);
    each = kept ? static_cast<float>(std::exp(static_cast<double>(each) - most) / sum) : 0.0F;
  }
}

}  // namespace

Experts::Experts(const Weights& weights, const std::string& layer, const ModelConfig& config, Precision precision,
                 const std::vector<float>& largest)
    : per_token_(config.block.experts_per_token),
      activation_(config.hidden_act),
      router_(read_linear(weights, layer + "intermediate.router",
                          precision == Precision::kBfloat16 ? precision : Precision::kFloat32)),
      bias_(weights.vector(layer + "output.experts.bias")) {
  const int64_t width = config.hidden_size, inner = config.intermediate_size;
  const TensorFloats up = weights.floats(layer + "intermediate.experts.w1");
  const TensorFloats down = weights.floats(layer + "intermediate.experts.w2");
  std::vector<float> turned(static_cast<size_t>(width * inner));
  for (int64_t e = 0; e < config.block.experts; ++e) {
    const int64_t begin = e * inner * width;
    ups_.emplace_back(precision, width, inner, up.get() + begin, std::vector<float>(), largest);
    for (int64_t f = 0; f < inner; ++f) {
      for (int64_t c = 0; c < width; ++c) turned[c * inner + f] = down.get()[begin + f * width + c];
    }
    downs_.emplace_back(precision, inner, width, turned.data(), std::vector<float>());
  }
}

void Experts::choose(rf_dtype dtype, int64_t tokens, const void* x, Memory& memory) const {
  const auto experts = std::ssize(ups_);
  memory.shares.resize(static_cast<size_t>(tokens * experts));
  memory.narrow.resize(static_cast<size_t>(tokens * experts * bytes_of(dtype)));
  router_(tokens, x, router_.in(), memory.narrow.data());
  to_floats(dtype, tokens * experts, memory.narrow.data(), memory.shares.data());
  for (int64_t t = 0; t < tokens; ++t)
    keep_greatest(std::span(memory.shares).subspan(static_cast<size_t>(t * experts), static_cast<size_t>(experts)),
                  per_token_);
}

void Experts::operator()(rf_dtype dtype, int64_t tokens, const void* x, void* y, Memory& memory) const {
  choose(dtype, tokens, x, memory);
  const auto experts = std::ssize(ups_);
  const int64_t width = router_.in(), row = width * bytes_of(dtype), inner = ups_[0].out();
  memory.sums.assign(static_cast<size_t>(tokens * width), 0.0F);
  for (int64_t e = 0; e < experts; ++e) {
    memory.tokens.clear();
    for (int64_t t = 0; t < tokens; ++t) {
      if (memory.shares[t * experts + e] > 0) memory.tokens.push_back(t);
    }
    const auto count = std::ssize(memory.tokens);
    if (count == 0) continue;
    memory.gathered.resize(static_cast<size_t>(count * row));
    memory.wide.resize(static_cast<size_t>(count * inner * bytes_of(dtype)));
    memory.part.resize(static_cast<size_t>(count * width));
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(static_cast<const std::byte*>(x) + memory.tokens[i] * row, row, memory.gathered.data() + i * row);
    ups_[e](count, memory.gathered.data(), width, memory.wide.data(), activation_);
    downs_[e](count, memory.wide.data(), inner, memory.gathered.data());
    to_floats(dtype, count * width, memory.gathered.data(), memory.part.data());
    for (int64_t i = 0; i < count; ++i) {
      const float share = memory.shares[memory.tokens[i] * experts + e];
      float* const sum = memory.sums.data() + memory.tokens[i] * width;
      for (int64_t c = 0; c < width; ++c) sum[c] += share * memory.part[i * width + c];
    }
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < width; ++c) memory.sums[t * width + c] += bias_[c];
  }
  from_floats(dtype, tokens * width, memory.sums.data(), y);
}

}  // namespace rf::engine
