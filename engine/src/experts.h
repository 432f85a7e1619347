// A layer's mixture of experts (BlockSpec): each token reads the experts that its router gives the greatest
// probabilities. The sum of a token is in the order of the experts, so its bits do not depend on other tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers.h"
#include "weights.h"

namespace rf::engine {

class Experts {
 public:
  // The memory of a call, kept for the next.
  struct Memory {
    std::vector<std::byte> gathered, wide, narrow;
    std::vector<float> shares, sums, part;  // shares: [tokens, experts], 0 if a token skips an expert
    std::vector<float> gates;
    std::vector<int64_t> tokens;
  };

  Experts() = default;
  // layer: the prefix of its names. largest: as largest_inputs of Linear.
  Experts(const Weights& weights, const std::string& layer, const ModelConfig& config, Precision precision,
          const std::vector<float>& largest);
  bool empty() const { return ups_.empty(); }
  // x, y: [tokens, hidden_size]; they may not overlap.
  void operator()(rf_dtype dtype, int64_t tokens, const void* x, void* y, Memory& memory) const;

 private:
  void choose(rf_dtype dtype, int64_t tokens, const void* x, Memory& memory) const;
  // Turns the columns that `up` writes into the columns that `down` reads, in place and with the same stride.
  void activate_rows(rf_dtype dtype, int64_t rows, Memory& memory) const;

  BlockSpec block_ = {};
  int64_t width_ = 0, inner_ = 0;
  Activation activation_ = Activation::kGelu;
  Linear router_;
  std::vector<Linear> ups_, downs_;
  std::vector<float> bias_;  // of the sum; empty: none
};

}  // namespace rf::engine
