// Linear attention of a model (RoFormer, arXiv 2104.09864 Eq. 18-19): queries and keys are mapped to features, and the
// kernel of rf/linear_attention.h sums over keys.
//
// Causal shen and favor divide the features of a key by the exponential of the largest exponent up to it, which rises
// from key to key (nn/src/linear_attention_paths.h): the kernel knows these maxima as exponents of its keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "position.h"
#include "rf/linear_attention.h"
#include "rf/model/linear_attention_config.h"
#include "sequence_cache.h"
#include "weights.h"

namespace rf::engine {

// Work space of a call, kept for the next.
struct FeatureMemory {
  std::vector<float> q, k, v, out;                  // [tokens, heads, head_dim] of float32
  std::vector<float> query_features, key_features;  // [tokens, heads, features]
  std::vector<float> maxima;                        // [tokens, heads]
};

// The tokens of a call follow the tokens of earlier calls.
struct GrowingSequences {
  const LinearStates& states;
  std::span<const int64_t> sequences;  // the extended sequences of `states`, in the order of the call
};

class LinearAttention {
 public:
  // Throws Error for causal shen_original, which needs all keys, and if `position` has other terms than rotations of
  // queries and keys.
  LinearAttention(const ModelConfig& config, const Weights& weights, const Position& position);

  LinearStates::Shape states_shape(int64_t sequences, int64_t capacity) const;
  // call: packed sequences, as for softmax attention. growing: the states that the keys are added to; nullptr: the call
  // has whole sequences.
  void operator()(int64_t layer, const rf_attention_args& call, FeatureMemory& memory,
                  const GrowingSequences* growing = nullptr) const;

 private:
  int64_t features() const;
  int64_t sums() const { return features() * (head_dim_ + 1); }  // numbers of a head
  // The arguments that all heads share: vectors or features of the first token, and their strides.
  rf_linear_attention_args prepare(const rf_attention_args& call, FeatureMemory& memory) const;
  // The vectors become views of `memory`, in float32.
  void convert(const rf_attention_args& call, FeatureMemory& memory, rf_linear_attention_args& args) const;
  // Queries and keys become the features of `memory`, which map() writes.
  void place_features(int64_t tokens, FeatureMemory& memory, rf_linear_attention_args& args) const;
  // The features of a head of a sequence, and its running maxima.
  void map(int64_t layer, const rf_attention_args& call, int64_t sequence, int64_t head, double earlier_maximum,
           FeatureMemory& memory) const;
  // Computes a sequence and adds its keys to `state`.
  void extend(const rf_linear_attention_args& all, const rf_attention_args& call, int64_t sequence,
              const LinearState& state) const;

  LinearAttentionConfig config_;
  int64_t layers_, heads_, head_dim_;
  bool has_running_maximum_;
  std::vector<std::vector<float>> projections_;  // [head_dim, features] of each layer; favor and relu
};

}  // namespace rf::engine
