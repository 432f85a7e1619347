// The configuration of linear attention (arXiv 2104.09864 Eq. 18-19): "attention": {"type": "linear", ..} of
// config.json. The equation is in rf/nn/linear_attention.h, the feature maps are in nn/src/linear_attention_paths.h.
#pragma once

#include <cstdint>

#include "rf/model/config.h"

namespace rf {

enum class FeatureMap { kElu, kShenOriginal, kShen, kFavor, kRelu, kCosine };
enum class RopeSite { kNone, kBeforeMap, kAfterMap };
struct LinearAttentionConfig {
  FeatureMap feature_map = FeatureMap::kElu;  // "elu", "shen_original", "shen", "favor", "relu", "cosine"
  RopeSite rope_site = RopeSite::kAfterMap;   // "after_map" ("cosine": "before_map"), "before_map", "none"
  bool rotate_denominator = false;            // only with rope_site after_map
  double eps = 0;                             // added to the denominator
  // Only with feature_map favor and relu, which use random projections:
  int64_t num_features = 0;        // m; 0: D ln D, cut to an integer and rounded up to even
  bool orthogonal = true;          // vectors orthogonal in blocks of D; false: independent
  int64_t orthogonal_scaling = 0;  // their lengths: 0 as of Gaussian vectors, 1 all sqrt(D)
  int64_t redraw_every = 1000;     // forward calls in training mode; 0: never
  double feature_eps = 0;          // added to every feature; default 1e-4 (favor), 1e-3 (relu)
  int64_t seed = 0;                // of the draws

  bool draws() const { return feature_map == FeatureMap::kFavor || feature_map == FeatureMap::kRelu; }
};

// Throws Error for an unknown key, a value out of range, keys that contradict each other.
LinearAttentionConfig parse_linear_attention(const AttentionConfig& config);

// As in config.json.
const char* name(FeatureMap map);
const char* name(RopeSite site);

// Whether a model has linear attention.
bool has_linear_attention(const ModelConfig& config);

int64_t num_features(const LinearAttentionConfig& config, int64_t head_dim);  // m
// The number of elements that may be rotated: F if rope_site is after_map (cosine: D, because its constant feature is
// never rotated), otherwise D.
int64_t feature_dim(const LinearAttentionConfig& config, int64_t head_dim);
// The number of elements of a head's vectors that a model's position encoding may rotate.
int64_t rotated_dim(const ModelConfig& config);

}  // namespace rf
