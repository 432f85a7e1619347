// A mixture of experts (see the header).
#include "experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "parallel_for.h"
#include "rf/io/error.h"
#include "rf/model/weights.h"

namespace rf::engine {

namespace {

// The probabilities of the greatest `count` scores, the first among equal scores; 0 for the others. The softmax is over
// all scores, or with shares_one over the kept scores only.
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
  // An expert's part of a tensor; empty for a missing bias.
  std::vector<float> part(const std::string& name, int64_t expert) {
    if (!weights_.has(prefix_ + name)) return {};
    auto& all = read_[name];
    if (all == nullptr) all.reset(new TensorFloats(weights_.floats(prefix_ + name)));
    const int64_t size = all->size() / experts_;
    return {all->get() + expert * size, all->get() + (expert + 1) * size};
  }

  // The same for blocks of MXFP4: pairs of 4-bit numbers, the low bits first, and an exponent for each block.
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

  // The same in the layout of GGUF files: rows of blocks, the exponent, then elements i and i + 16 in pairs. order(i):
  // the row of `rows` that becomes row i.
  template <class Order>
  Linear packed(const std::string& name, int64_t expert, int64_t rows, std::vector<float> bias,
                const Order& order) const {
    constexpr int64_t kBytes = kMxfp4Block / 2, kHalf = kBytes / 2, kStored = kBytes + 1;
    const std::span<const std::byte> pairs = weights_.bytes(prefix_ + name + "_blocks"),
                                     scales = weights_.bytes(prefix_ + name + "_scales");
    const int64_t blocks = std::ssize(scales) / experts_ / rows;  // of a row
    std::vector<std::byte> stored(static_cast<size_t>(rows * blocks * kStored));
    FileRows of_file{.runs = {{RF_BLOCK_MXFP4, rows}}};
    std::byte* to = stored.data();
    for (int64_t row = 0; row < rows; ++row) {
      of_file.rows.push_back(to);
      for (int64_t block = (expert * rows + order(row)) * blocks, i = 0; i < blocks; ++i, ++block, to += kStored) {
        const std::byte *const low = &pairs[block * kBytes], *const high = low + kHalf;
        to[0] = scales[block];
        for (int64_t j = 0; j < kHalf; ++j) {
          to[1 + 2 * j] = (low[j] & std::byte{15}) | (high[j] << 4);
          to[2 + 2 * j] = (low[j] >> 4) | (high[j] & std::byte{240});
        }
      }
    }
    return Linear(blocks * kMxfp4Block, of_file, std::move(bias));
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

// Rows of gates and of the other half come in turn: that which becomes row `row` when halves follow each other.
int64_t row_in_turn(int64_t row, int64_t rows) { return row % (rows / 2) * 2 + row / (rows / 2); }

std::vector<float> halves(const std::vector<float>& from, int64_t rows) {
  const int64_t width = std::ssize(from) / rows;
  std::vector<float> to(from.size());
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(from.data() + row_in_turn(r, rows) * width, width, to.data() + r * width);
  return to;
}

}  // namespace

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
  const int64_t up_rows = block_.gated ? 2 * inner_ : inner_;
  for (int64_t e = 0; e < count; ++e) {
    const auto part = [&](const char* name) { return stacks.part(name, e); };
    const auto add_up = [&](const std::vector<float>& up, std::vector<float> bias = {}) {
      ups_.emplace_back(precision, width_, up_rows, up.data(), std::move(bias), largest);
    };
    const auto add_down = [&](const std::vector<float>& down, std::vector<float> bias = {}) {
      downs_.emplace_back(precision, inner_, width_, down.data(), std::move(bias));
    };
    switch (block_.expert_files) {
      case Files::kEach: {
        const std::string own = fmt::format("{}{}.", experts, e);
        add_up(joined_parts(weights.vector(own + "gate.weight"), weights.vector(own + "up.weight")));
        add_down(weights.vector(own + "down.weight"));
        break;
      }
      case Files::kStacked: {
        std::vector<float> up_bias = joined_parts(part("gate.bias"), part("up.bias")), down_bias = part("down.bias");
        const auto add_stored = [&](std::vector<Linear>& to, const std::vector<std::string>& tensors,
                                    const std::vector<float>& of_rows) {
          std::optional<Linear> linear = read_stored_part(weights, tensors, precision, of_rows, e);
          if (linear) to.push_back(std::move(*linear));
          return linear.has_value();
        };
        if (!add_stored(ups_, {experts + "gate.weight", experts + "up.weight"}, up_bias))
          add_up(joined_parts(part("gate.weight"), part("up.weight")), std::move(up_bias));
        if (!add_stored(downs_, {experts + "down.weight"}, down_bias))
          add_down(part("down.weight"), std::move(down_bias));
        break;
      }
      case Files::kJoined:
        add_up(part("gate_up.weight"));
        add_down(part("down.weight"));
        break;
      case Files::kInterleaved:
        add_up(halves(transposed(part("gate_up_proj"), width_), up_rows), halves(part("gate_up_proj_bias"), up_rows));
        add_down(transposed(part("down_proj"), inner_), part("down_proj_bias"));
        break;
      case Files::kBlocks: {
        std::vector<float> up_bias = halves(part("gate_up_proj_bias"), up_rows), down_bias = part("down_proj_bias");
        if (precision != Precision::kFloat32) {
          add_up(halves(stacks.blocks("gate_up_proj", e), up_rows), std::move(up_bias));
          add_down(stacks.blocks("down_proj", e), std::move(down_bias));
          break;
        }
        const auto in_turn = [&](int64_t row) { return row_in_turn(row, up_rows); };
        ups_.push_back(stacks.packed("gate_up_proj", e, up_rows, std::move(up_bias), in_turn));
        downs_.push_back(stacks.packed("down_proj", e, width_, std::move(down_bias), std::identity()));
        break;
      }
      case Files::kRows:
        add_up(part("w1"));
        add_down(transposed(part("w2"), inner_));
        break;
    }
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
