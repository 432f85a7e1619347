// Layers from the weights of a model: `name`.weight and `name`.bias. Linear layers of RoFormerV2 lack the bias, its
// norms lack both.
#pragma once

#include <string>
#include <vector>

#include "layers.h"
#include "weights.h"

namespace rf::engine {

inline std::vector<float> read_bias(const Weights& weights, const std::string& name) {
  return weights.has(name + ".bias") ? weights.vector(name + ".bias") : std::vector<float>();
}

// largest_inputs: as Linear has them.
inline Linear read_linear(const Weights& weights, const std::string& name, Precision precision,
                          const std::vector<float>& largest_inputs = {}) {
  const std::vector<int64_t>& shape = weights.view(name + ".weight").shape;
  return Linear(precision, shape[1], shape[0], weights.floats(name + ".weight").get(), read_bias(weights, name),
                largest_inputs);
}

inline Norm read_norm(const Weights& weights, const std::string& name, const ModelConfig& config, int64_t columns) {
  Norm norm{.kind = config.norm_kind(), .columns = columns, .gain = {}, .bias = {}, .eps = config.layer_norm_eps};
  if (norm.kind == NormKind::kRms) return norm;
  norm.gain = weights.vector(name + ".weight");
  norm.bias = weights.vector(name + ".bias");
  return norm;
}

}  // namespace rf::engine
