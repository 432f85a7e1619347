// The number formats in which a model computes, and in which a decoder keeps keys and values.
#pragma once

namespace rf::engine {

enum class Precision {
  kFloat32,
  kBfloat16,  // weights and activations are bfloat16, sums float32
  kInt8,      // weights int8 with a scale for each output, activations quantised row by row; everything else float32
};

// Of keys and values before their rotation; attention converts them to float32.
enum class CachePrecision {
  kAuto,  // as the model computes them: float32, or bfloat16 with Precision::kBfloat16
  kBfloat16,
  kInt8,  // with one scale for each token and head, its largest magnitude / 127: an element is off by at most half of
          // the scale
};

}  // namespace rf::engine
