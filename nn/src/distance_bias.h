// The base of the encodings that add one table of numbers by distance to the scores of all layers, outside the scale.
#pragma once

#include <ATen/ops/arange.h>

#include "rf/nn/encoding.h"

namespace rf::nn {

class DistanceBias : public DistanceEncoding {
 public:
  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    const auto [lo, hi] = distance_range(positions);
    return {.terms = {.bias = {rows(at::arange(lo, hi + 1, at::kDouble), dtype), lo, hi}}};
  }

 protected:
  // [H, R]; distance_R: float64, query minus key; dtype: of queries and keys.
  virtual at::Tensor rows(const at::Tensor& distance_R, at::ScalarType dtype) const = 0;
};

}  // namespace rf::nn
