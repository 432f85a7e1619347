// The base of transformer-xl and dai-literal: sinusoids R by distance, times the W_r of each layer.
#pragma once

#include <ATen/ops/arange.h>

#include "known_values.h"
#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rotary_rows.h"

namespace rf::nn {

class ProjectedSinusoids : public DistanceEncoding {
 protected:
  explicit ProjectedSinusoids(const EncodingShape& shape, io::StrictObject& options)
      : name_(options.path()), shape_(shape) {
    if (shape.hidden_size % 2 != 0) {
      fail("position_encoding", "hidden_size must be even for {} (sines and cosines), got {}", name_,
           shape.hidden_size);
    }
  }

  void make_weights() {
    weights_ = layer_parameters(*this, shape_.layers, "r_weight", [&] {
      return drawn({shape_.heads * shape_.head_dim, shape_.hidden_size}, shape_);
    });
  }

  at::Tensor sinusoids(const at::Tensor& positions) const {
    const at::ScalarType type = weights_.front()->scalar_type();
    return sinusoid(positions, shape_.hidden_size, SinusoidLayout::kHalf, type).to(type);
  }

  // [1, distances, C].
  DistanceTable sinusoids_by_distance(const Positions& positions, int64_t farthest = INT64_MAX) const {
    const OutsideTransforms constant;
    const auto [lo, hi] = distance_range(positions, farthest);
    return {sinusoids(at::arange(lo, hi + 1, at::kLong)).unsqueeze(0), lo, hi};
  }

  const at::Tensor& query_weight(const Projections& projections, const char* rule) const {
    if (!projections.query_weight.defined()) fail(name_, "{}, got none", rule);
    return projections.query_weight;
  }

  std::string name_;  // for messages
  EncodingShape shape_;
  std::vector<Parameter> weights_;  // W_r [H*D, C] for each layer
};

}  // namespace rf::nn
