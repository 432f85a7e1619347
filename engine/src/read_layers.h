// Layers from the weights of a model: `name`.weight and `name`.bias.
#pragma once

#include <string>
#include <vector>

#include "layers.h"
#include "weights.h"

namespace rf::engine {

// largest_inputs: as Linear has them.
inline Linear read_linear(const Weights& weights, const std::string& name, Precision precision,
                          const std::vector<float>& largest_inputs = {}) {
  const std::vector<int64_t>& shape = weights.view(name + ".weight").shape;
  return Linear(precision, shape[1], shape[0], weights.floats(name + ".weight").get(), weights.vector(name + ".bias"),
                largest_inputs);
}

inline Norm read_norm(const Weights& weights, const std::string& name, double eps) {
  return {weights.vector(name + ".weight"), weights.vector(name + ".bias"), eps};
}

}  // namespace rf::engine
