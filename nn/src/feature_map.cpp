// The feature maps of linear attention (linear_attention_paths.h).
#include "linear_attention_paths.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>

#include <cmath>

namespace rf::nn {

namespace {

// Like elu(x) + 1, which is 0 in float32 below x = -17, but positive down to -87.
at::Tensor elu_plus_one(const at::Tensor& x) { return at::where(x.gt(0), x + 1, x.clamp_max(0).exp()); }

at::Tensor cosine(const at::Tensor& x) {
  constexpr double kMinNorm = 1e-12;  // a zero vector stays zero
  const at::Tensor unit = x / at::linalg_vector_norm(x, 2, {-1}, /*keepdim=*/true).clamp_min(kMinNorm);
  return at::cat({unit, at::ones_like(x.narrow(-1, 0, 1))}, -1);
}

// w_j . x' and |x'|^2 / 2 for each vector.
struct Projected {
  at::Tensor products_BTHF, half_norm_BTH1;
};
Projected project(const MapInput& input) {
  const at::Tensor x = input.x_BTHD * std::sqrt(input.scale);
  return {at::matmul(x, input.projection_FD.t()), x.square().sum(-1, /*keepdim=*/true) / 2};
}

at::Tensor relu_features(const LinearAttentionConfig& config, const MapInput& input) {
  return at::relu(project(input).products_BTHF) + config.feature_eps;
}

double root(const at::Tensor& features) { return std::sqrt(static_cast<double>(features.size(-1))); }

at::Tensor masked(const at::Tensor& x_BSHF, const at::Tensor& mask_BS, double value) {
  if (!mask_BS.defined()) return x_BSHF;
  return x_BSHF.masked_fill(mask_BS.logical_not().unsqueeze(-1).unsqueeze(-1), value);
}

// Exponents of keys, and the maximum to subtract: [B,1,H] over all keys, or [B,S,H] over the keys up to each key.
at::Tensor maximum_of(const at::Tensor& exponents_BSHF, Direction direction, const at::Tensor& earlier_BH) {
  const at::Tensor of_key_BSH = exponents_BSHF.amax(-1);
  if (direction == Direction::kBidirectional) return of_key_BSH.amax(1, /*keepdim=*/true);
  const at::Tensor running_BSH = std::get<0>(at::cummax(of_key_BSH, 1));
  return earlier_BH.defined() ? at::maximum(running_BSH, earlier_BH.unsqueeze(1)) : running_BSH;
}

// Without keys the maximum is undefined; the empty features are returned unchanged.
KeyFeatures exponentials(const LinearAttentionConfig& config, const MapInput& keys, const at::Tensor& mask_BS,
                         Direction direction, const at::Tensor& earlier_BH) {
  const bool favor = config.feature_map == FeatureMap::kFavor;
  const Projected of = favor ? project(keys) : Projected{keys.x_BTHD, {}};
  KeyFeatures features;
  if (of.products_BTHF.size(1) == 0) return {of.products_BTHF, {}};
  const at::Tensor exponents = masked(of.products_BTHF, mask_BS, lowest_maximum(of.products_BTHF.scalar_type()));
  const at::Tensor maximum = maximum_of(exponents, direction, earlier_BH);
  at::Tensor shifted = exponents - maximum.unsqueeze(-1);
  if (favor) shifted = shifted - of.half_norm_BTH1;
  at::Tensor rows = shifted.exp();
  if (favor) rows = (rows + config.feature_eps) / root(rows);
  features.rows_BSHF = rows;
  if (direction == Direction::kCausal) features.maximum_BSH = maximum;
  return features;
}

// softmax over the unmasked keys; 0 if all keys are masked.
at::Tensor softmax_of_keys(const at::Tensor& x_BSHD, const at::Tensor& mask_BS) {
  return at::softmax(masked(x_BSHD, mask_BS, lowest_maximum(x_BSHD.scalar_type())), 1);
}

}  // namespace

at::Tensor query_features(const LinearAttentionConfig& config, const MapInput& queries) {
  switch (config.feature_map) {
    case FeatureMap::kElu: return elu_plus_one(queries.x_BTHD);
    case FeatureMap::kShenOriginal:
    case FeatureMap::kShen: return at::softmax(queries.x_BTHD, -1);
    case FeatureMap::kFavor: {
      const Projected of = project(queries);
      const at::Tensor largest = of.products_BTHF.amax(-1, /*keepdim=*/true);
      const at::Tensor rows = (of.products_BTHF - of.half_norm_BTH1 - largest).exp() + config.feature_eps;
      return rows / root(rows);
    }
    case FeatureMap::kRelu: return relu_features(config, queries);
    case FeatureMap::kCosine: return cosine(queries.x_BTHD);
  }
  return {};
}

KeyFeatures key_features(const LinearAttentionConfig& config, const MapInput& keys, const at::Tensor& mask_BS,
                         Direction direction, const at::Tensor& earlier_BH) {
  KeyFeatures features;
  switch (config.feature_map) {
    case FeatureMap::kElu: features.rows_BSHF = elu_plus_one(keys.x_BTHD); break;
    case FeatureMap::kShenOriginal: features.rows_BSHF = softmax_of_keys(keys.x_BTHD, mask_BS); break;
    case FeatureMap::kShen:
    case FeatureMap::kFavor: features = exponentials(config, keys, mask_BS, direction, earlier_BH); break;
    case FeatureMap::kRelu: features.rows_BSHF = relu_features(config, keys); break;
    case FeatureMap::kCosine: features.rows_BSHF = cosine(keys.x_BTHD); break;
  }
  features.rows_BSHF = masked(features.rows_BSHF, mask_BS, 0);
  return features;
}

}  // namespace rf::nn
