// The feature maps of linear attention that its kernel does not compute, in float32. nn/src/feature_map.h has their
// formulas and sources; the functions there have gradients, these work without PyTorch.
#pragma once

#include <cstdint>

#include "rf/model/linear_attention_config.h"

namespace rf::engine {

// Rows of one head: row t begins at data + t * stride.
template <class T>
struct HeadVectors {
  T* data;
  int64_t stride;
  T* row(int64_t t) const { return data + t * stride; }
};

struct MapSizes {
  int64_t tokens, head_dim, features;
};

// Causal shen and favor: features of a key are divided by the exponential of the largest exponent up to it.
struct RunningMaximum {
  float earlier;               // of keys that came before
  HeadVectors<float> of_keys;  // rows of one number, written: the largest exponent up to each key
};

struct FeatureMapper {
  const LinearAttentionConfig& config;
  MapSizes sizes;
  double scale;             // of scores, for favor and relu
  const float* projection;  // [head_dim, features], for favor and relu

  void map_queries(HeadVectors<const float> q, HeadVectors<float> f) const;
  // mask: 0 for keys that are left out, whose features are not defined; nullptr: none. running: read by shen and favor;
  // nullptr: the maximum is that of all keys.
  void map_keys(HeadVectors<const float> k, const uint8_t* mask, HeadVectors<float> g,
                const RunningMaximum* running) const;

 private:
  // w_j . x' for all features; the result is |x'|^2 / 2.
  float project(const float* x, float* products) const;
  float exponents(const float* x, float* y) const;
  void map_exponentials(HeadVectors<const float> k, const uint8_t* mask, HeadVectors<float> g,
                        const RunningMaximum* running) const;
  void map_softmax_of_keys(HeadVectors<const float> k, const uint8_t* mask, HeadVectors<float> g) const;
};

}  // namespace rf::engine
