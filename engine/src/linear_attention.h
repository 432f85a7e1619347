// Linear attention of a model (RoFormer, arXiv 2104.09864 Eq. 18-19): queries and keys are mapped to features, and the
// kernel of rf/linear_attention.h sums over keys.
#pragma once

#include <cstdint>
#include <vector>

#include "position.h"
#include "rf/linear_attention.h"
#include "rf/model/linear_attention_config.h"
#include "weights.h"

namespace rf::engine {

// What a call needs besides its arguments; kept from call to call.
struct FeatureMemory {
  std::vector<float> q, k, v, out;                  // [tokens, heads, head_dim] of float32
  std::vector<float> query_features, key_features;  // [tokens, heads, features]
};

class LinearAttention {
 public:
  // Throws Error for causal shen and favor, whose sums are rescaled from key to key, and where `position` has other
  // terms than rotations of queries and keys.
  LinearAttention(const ModelConfig& config, const Weights& weights, const Position& position);

  // call: packed sequences, as for softmax attention.
  void operator()(int64_t layer, const rf_attention_args& call, FeatureMemory& memory) const;

 private:
  int64_t features() const;
  // What the arguments of all sequences share: vectors and features of the first token, and their strides.
  rf_linear_attention_args prepare(int64_t layer, const rf_attention_args& call, FeatureMemory& memory) const;
  // Puts the features of memory.q and memory.k into `args`.
  void map(int64_t layer, const rf_attention_args& call, FeatureMemory& memory, rf_linear_attention_args& args) const;

  LinearAttentionConfig config_;
  int64_t head_dim_;
  std::vector<std::vector<float>> projections_;  // [head_dim, features] of each layer; favor and relu
};

}  // namespace rf::engine
