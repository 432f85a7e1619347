// Reads and checks the configuration of linear attention (linear_attention_config.h), including rules for combinations
// of keys: which map has which keys, and which placements of the rotation are contradictory.
#include "rf/model/linear_attention_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/strict_object.h"

namespace rf {

namespace {

constexpr double kFavorEps = 1e-4, kReluEps = 1e-3;  // R-LIN-04, R-LIN-05
constexpr int64_t kMaxFeatures = int64_t{1} << 20;

void read_draws(io::StrictObject& options, LinearAttentionConfig& config) {
  if (!config.draws()) {
    for (const char* key :
         {"num_features", "orthogonal", "orthogonal_scaling", "redraw_every", "feature_eps", "seed"}) {
      if (const nlohmann::json* value = options.find(key)) {
        fail("attention", "{} must only be given with feature_map favor or relu, got {}", options.path_of(key),
             value->dump());
      }
    }
    return;
  }
  if (options.find("num_features") != nullptr) {
    config.num_features = options.integer("num_features", 0, 1, kMaxFeatures);
    if (config.num_features % 2 != 0 && config.rope_site == RopeSite::kAfterMap) {
      fail("attention", "{} must be even for a rotation of the features (rope_site after_map), got {}",
           options.path_of("num_features"), config.num_features);
    }
  }
  config.orthogonal = options.boolean("orthogonal", true);
  config.orthogonal_scaling = options.integer("orthogonal_scaling", 0, 0, 1);
  if (!config.orthogonal && config.orthogonal_scaling != 0) {
    fail("attention", "{} must be 0 when orthogonal is false, got {}", options.path_of("orthogonal_scaling"),
         config.orthogonal_scaling);
  }
  config.redraw_every = options.integer("redraw_every", 1000, 0, INT64_MAX);
  const double feature_eps = config.feature_map == FeatureMap::kFavor ? kFavorEps : kReluEps;
  config.feature_eps = options.number("feature_eps", feature_eps, {0, 1});
  config.seed = options.integer("seed", 0, 0, INT64_MAX);
}

}  // namespace

LinearAttentionConfig parse_linear_attention(const AttentionConfig& given) {
  const nlohmann::json json = io::parse_json(given.options, "attention");
  io::StrictObject options(json, "attention", "linear");
  LinearAttentionConfig config;
  using enum FeatureMap;
  const auto by_name = [](auto value) { return std::pair{name(value), value}; };
  config.feature_map = options.choice(
      "feature_map", kElu,
      {by_name(kElu), by_name(kShenOriginal), by_name(kShen), by_name(kFavor), by_name(kRelu), by_name(kCosine)});
  // 1 + cos stays non-negative under a rotation in both sums (R-LIN-07), the rotation before the normalisation.
  const RopeSite site = config.feature_map == FeatureMap::kCosine ? RopeSite::kBeforeMap : RopeSite::kAfterMap;
  config.rope_site = options.choice(
      "rope_site", site, {by_name(RopeSite::kAfterMap), by_name(RopeSite::kBeforeMap), by_name(RopeSite::kNone)});
  config.rotate_denominator = options.boolean("rotate_denominator", false);
  if (config.rotate_denominator && config.rope_site != RopeSite::kAfterMap) {
    fail("attention", "{} must be false unless rope_site is after_map, got true with {}",
         options.path_of("rotate_denominator"), name(config.rope_site));
  }
  config.eps = options.number("eps", 0, {0, 1});
  read_draws(options, config);
  options.finish();
  return config;
}

const char* name(FeatureMap map) {
  constexpr const char* kNames[] = {"elu", "shen_original", "shen", "favor", "relu", "cosine"};
  return kNames[static_cast<size_t>(map)];
}

const char* name(RopeSite site) {
  constexpr const char* kNames[] = {"none", "before_map", "after_map"};
  return kNames[static_cast<size_t>(site)];
}

bool has_linear_attention(const ModelConfig& config) { return config.attention.type == "linear"; }

int64_t num_features(const LinearAttentionConfig& config, int64_t head_dim) {
  if (config.num_features > 0) return config.num_features;
  const double d = static_cast<double>(head_dim);
  const auto wanted = static_cast<int64_t>(d * std::log(d));
  return std::max<int64_t>(2, wanted + wanted % 2);
}

int64_t feature_dim(const LinearAttentionConfig& config, int64_t head_dim) {
  const bool rotates_features = config.rope_site == RopeSite::kAfterMap && config.draws();
  return rotates_features ? num_features(config, head_dim) : head_dim;
}

int64_t rotated_dim(const ModelConfig& config) {
  if (!has_linear_attention(config)) return config.head_dim();
  return feature_dim(parse_linear_attention(config.attention), config.head_dim());
}

}  // namespace rf
