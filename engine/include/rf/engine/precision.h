// The number format in which a model computes.
#pragma once

namespace rf::engine {

enum class Precision {
  kFloat32,
  kBfloat16,  // weights and activations are bfloat16, sums float32
  kInt8,      // weights int8 with a scale for each output, activations quantised row by row; everything else float32
};

}  // namespace rf::engine
