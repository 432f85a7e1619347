// A mixture of experts (see the header).
#include "experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "parallel_for.h"
#include "rf/io/error.h"
#include "rf/model/weights.h"

namespace rf::engine {

namespace {

// The probabilities of the greatest `count` scores among all, or where `shares_one` is true among those, of equal ones
// the first; 0 for the others.
void keep_greatest(std::span<float> scores, int64_t count, bool shares_one) {
  const float most = *std::ranges::max_element(scores);
  std::vector<float> order(scores.begin(), scores.end());
  std::ranges::nth_element(order, order.begin() + count - 1, std::greater());
  const float least = order[static_cast<size_t>(count - 1)];
  int64_t ties = count - std::ranges::count_if(scores, [&](float each) { return each > least; });
  std::vector<double> kept(scores.size());
  double all = 0, sum = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp(static_cast<double>(scores[i]) - most);
    all += weight;
    if (scores[i] > least || (scores[i] == least && ties-- > 0)) sum += kept[i] = weight;
  }
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(kept[i] / (shares_one ? sum : all));
}

// Tensors of all experts, each read once.
class Stacks {
 public:
  Stacks(const Weights& weights, std::string prefix, int64_t experts)
      : weights_(weights), prefix_(std::move(prefix)), experts_(experts) {}
  // What an expert has of a tensor; empty for a bias that there is not.
  std::vector<float> part(const std::string& name, int64_t expert) {
    if (!weights_.has(prefix_ + name)) return {};
    auto& all = read_[name];
    if (all == nullptr) all.reset(new TensorFloats(weights_.floats(prefix_ + name)));
    const int64_t size = all->size() / experts_;
    return {all->get() + expert * size, all->get() + (expert + 1) * size};
  }

  // The same of blocks of MXFP4: pairs of numbers of 4 bits, the low one first, and an exponent for each block.
  std::vector<float> blocks(const std::string& name, int64_t expert) const {
    constexpr float kValues[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
    constexpr int64_t kBias = 127, kBytes = kMxfp4Block / 2;
    const std::span<const std::byte> pairs = weights_.bytes(prefix_ + name + "_blocks"),
                                     scales = weights_.bytes(prefix_ + name + "_scales");
    const int64_t count = std::ssize(scales) / experts_;
    std::vector<float> values(static_cast<size_t>(count * kMxfp4Block));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t block = expert * count + i;
      const int exponent = std::to_integer<int>(scales[block]) - kBias;
      for (int64_t j = 0; j < kBytes; ++j) {
        const auto pair = std::to_integer<unsigned>(pairs[block * kBytes + j]);
        float* const to = values.data() + i * kMxfp4Block + 2 * j;
        to[0] = std::ldexp(kValues[pair & 15], exponent);
        to[1] = std::ldexp(kValues[pair >> 4], exponent);
      }
    }
    if (!std::ranges::all_of(values, [](float each) { return std::isfinite(each); }))
      fail("load_model", "weights must be finite in float32, got scales up to 2^128 in {}{}_scales", prefix_, name);
    return values;
  }

 private:
  const Weights& weights_;
  std::string prefix_;
  int64_t experts_;
  std::map<std::string, std::unique_ptr<const TensorFloats>> read_;
};

std::vector<float> joined_parts(std::vector<float> first, const std::vector<float>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Rows of gates and of the other half in turn to both halves.
std::vector<float> halves(const std::vector<float>& from, int64_t rows) {
  const int64_t width = std::ssize(from) / rows;
  std::vector<float> to(from.size());
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(from.data() + (r % (rows / 2) * 2 + r / (rows / 2)) * width, width, to.data() + r * width);
  return to;
}

}  // namespace

void Experts::add_expert(Precision precision, const float* up, std::vector<float> up_bias, const float* down,
                         std::vector<float> down_bias, const std::vector<float>& largest) {
  ups_.emplace_back(precision, width_, block_.gated ? 2 * inner_ : inner_, up, std::move(up_bias), largest);
  downs_.emplace_back(precision, inner_, width_, down, std::move(down_bias));
}

Experts::Experts(const Weights& weights, const std::string& layer, const ModelConfig& config, Precision precision,
                 const std::vector<float>& largest)
    : block_(config.block),
      width_(config.hidden_size),
      inner_(config.expert_columns()),
      activation_(config.hidden_act),
      router_(read_linear(weights, layer + "intermediate.router",
                          precision == Precision::kBfloat16 ? precision : Precision::kFloat32)) {
  const std::string experts = layer + "intermediate.experts.", bias = layer + "output.experts.bias";
  if (weights.has(bias)) bias_ = weights.vector(bias);
  using Files = BlockSpec::ExpertFiles;
  const int64_t count = block_.experts;
  Stacks stacks(weights, experts, count);
  for (int64_t e = 0; e < count; ++e) {
    const auto part = [&](const char* name) { return stacks.part(name, e); };
    std::vector<float> up, up_bias, down, down_bias;
    switch (block_.expert_files) {
      case Files::kEach: {
        const std::string own = fmt::format("{}{}.", experts, e);
        up = joined_parts(weights.vector(own + "gate.weight"), weights.vector(own + "up.weight"));
        down = weights.vector(own + "down.weight");
        break;
      }
      case Files::kStacked:
        up = joined_parts(part("gate.weight"), part("up.weight"));
        up_bias = joined_parts(part("gate.bias"), part("up.bias"));
        down = part("down.weight");
        down_bias = part("down.bias");
        break;
      case Files::kJoined:
        up = part("gate_up.weight");
        down = part("down.weight");
        break;
      case Files::kInterleaved:
      case Files::kBlocks: {
        const bool packed = block_.expert_files == Files::kBlocks;
        up = halves(packed ? stacks.blocks("gate_up_proj", e) : transposed(part("gate_up_proj"), width_), 2 * inner_);
        up_bias = halves(part("gate_up_proj_bias"), 2 * inner_);
        down = packed ? stacks.blocks("down_proj", e) : transposed(part("down_proj"), inner_);
        down_bias = part("down_proj_bias");
        break;
      }
      case Files::kRows:
        up = part("w1");
        down = transposed(part("w2"), inner_);
        break;
    }
    add_expert(precision, up.data(), std::move(up_bias), down.data(), std::move(down_bias), largest);
  }
}

void Experts::activate_rows(rf_dtype dtype, int64_t rows, Memory& memory) const {
  if (block_.expert_limit == 0) return multiply_by_gate(activation_, dtype, rows, inner_, memory.wide.data());
  std::vector<float>& all = memory.gates;
  all.resize(static_cast<size_t>(rows * 2 * inner_));
  to_floats(dtype, std::ssize(all), memory.wide.data(), all.data());
  const auto limit = static_cast<float>(block_.expert_limit), slope = static_cast<float>(block_.expert_slope);
  parallel_for(rows, std::ssize(all) > 4096, [&](int64_t r) {
    float* const gate = all.data() + r * 2 * inner_;
    for (int64_t i = 0; i < inner_; ++i) {
      const float g = std::min(gate[i], limit), up = std::clamp(gate[inner_ + i], -limit, limit);
      gate[i] = (up + 1) * (g / (1 + std::exp(-slope * g)));
    }
  });
  from_floats(dtype, std::ssize(all), all.data(), memory.wide.data());
}

void Experts::choose(rf_dtype dtype, int64_t tokens, const void* x, Memory& memory) const {
  const auto experts = std::ssize(ups_);
  memory.shares.resize(static_cast<size_t>(tokens * experts));
  memory.narrow.resize(static_cast<size_t>(tokens * experts * bytes_of(dtype)));
  router_(tokens, x, router_.in(), memory.narrow.data());
  to_floats(dtype, tokens * experts, memory.narrow.data(), memory.shares.data());
  for (int64_t t = 0; t < tokens; ++t)
    keep_greatest(std::span(memory.shares).subspan(static_cast<size_t>(t * experts), static_cast<size_t>(experts)),
                  block_.experts_per_token, block_.expert_shares_one);
}

void Experts::operator()(rf_dtype dtype, int64_t tokens, const void* x, void* y, Memory& memory) const {
  choose(dtype, tokens, x, memory);
  const auto experts = std::ssize(ups_);
  const int64_t width = width_, row = width * bytes_of(dtype), up_columns = ups_[0].out();
  memory.sums.assign(static_cast<size_t>(tokens * width), 0.0F);
  for (int64_t e = 0; e < experts; ++e) {
    memory.tokens.clear();
    for (int64_t t = 0; t < tokens; ++t) {
      if (memory.shares[t * experts + e] > 0) memory.tokens.push_back(t);
    }
    const auto count = std::ssize(memory.tokens);
    if (count == 0) continue;
    memory.gathered.resize(static_cast<size_t>(count * row));
    memory.wide.resize(static_cast<size_t>(count * up_columns * bytes_of(dtype)));
    memory.part.resize(static_cast<size_t>(count * width));
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(static_cast<const std::byte*>(x) + memory.tokens[i] * row, row, memory.gathered.data() + i * row);
    if (block_.gated) {
      ups_[e](count, memory.gathered.data(), width, memory.wide.data());
      activate_rows(dtype, count, memory);
    } else {
      ups_[e](count, memory.gathered.data(), width, memory.wide.data(), activation_);
    }
    downs_[e](count, memory.wide.data(), up_columns, memory.gathered.data());
    to_floats(dtype, count * width, memory.gathered.data(), memory.part.data());
    for (int64_t i = 0; i < count; ++i) {
      const float share = memory.shares[memory.tokens[i] * experts + e];
      float* const sum = memory.sums.data() + memory.tokens[i] * width;
      for (int64_t c = 0; c < width; ++c) sum[c] += share * memory.part[i * width + c];
    }
  }
  for (int64_t t = 0; t < tokens && !bias_.empty(); ++t) {
    for (int64_t c = 0; c < width; ++c) memory.sums[t * width + c] += bias_[c];
  }
  from_floats(dtype, tokens * width, memory.sums.data(), y);
}

}  // namespace rf::engine
