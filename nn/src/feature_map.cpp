// The feature maps of linear attention (linear_attention_paths.h).
#include "attention_state.h"
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

// The maximum over zero keys. It is finite, so that the difference of two such maxima is not NaN, and so low that
// exponentials relative to any other number are 0.
double lowest_maximum(at::ScalarType dtype) { return dtype == at::kDouble ? -8e307 : -1.5e38; }

// Like elu(x) + 1, which is 0 in float32 below x = -17, but positive down to -87.
at::Tensor elu_plus_one(const at::Tensor& x) { return at::where(x.gt(0), x + 1, x.clamp_max(0).exp()); }

at::Tensor cosine(const at::Tensor& x) {
  constexpr double kMinNorm = 1e-12;  // a zero vector stays zero
  const at::Tensor unit = x / at::linalg_vector_norm(x, 2, {-1}, /*keepdim=*/true).clamp_min(kMinNorm);
  return at::cat({unit, at::ones_like(x.narrow(-1, 0, 1))}, -1);
}

// w_j . x' and -|x'|^2 / 2 for each vector.
struct Projected {
  at::Tensor products_BTHF, minus_half_norm_BTH1;
};
Projected project(const at::Tensor& x_BTHD, const LinearProblem& problem) {
  const at::Tensor x = x_BTHD * std::sqrt(score_scale(problem.terms, problem.q_BTHD));
  return {at::matmul(x, problem.projection_FD.t()), x.square().sum(-1, /*keepdim=*/true) / -2};
}

at::Tensor relu_features(const at::Tensor& x_BTHD, const LinearProblem& problem) {
  return at::relu(project(x_BTHD, problem).products_BTHF) + problem.config.feature_eps;
}

// (exp(exponents + shift) + eps) / root of the number of features. Whatever is the same for all features of a vector is
// part of the shift, a number for each vector: each pass over the features costs as much as their product.
at::Tensor exponentials(const at::Tensor& exponents_BTHF, const at::Tensor& shift_BTH1, double eps) {
  const double root = std::sqrt(static_cast<double>(exponents_BTHF.size(-1)));
  return (exponents_BTHF + (shift_BTH1 - std::log(root))).exp() + eps / root;
}

at::Tensor masked(const at::Tensor& x_BSHF, const at::Tensor& mask_BS, double value) {
  if (!mask_BS.defined()) return x_BSHF;
  return x_BSHF.masked_fill(mask_BS.logical_not().unsqueeze(-1).unsqueeze(-1), value);
}

// The maximum to subtract from exponents of keys: [B,1,H] over all keys, or [B,S,H] over the keys up to each key.
at::Tensor maximum_of(const at::Tensor& exponents_BSHF, const LinearAttentionCall& call) {
  const at::Tensor of_key_BSH = exponents_BSHF.amax(-1);
  if (call.direction == Direction::kBidirectional) return of_key_BSH.amax(1, /*keepdim=*/true);
  const at::Tensor running_BSH = std::get<0>(at::cummax(of_key_BSH, 1));
  const bool continues = call.state != nullptr && call.state->maximum_BH.defined();
  return continues ? at::maximum(running_BSH, call.state->maximum_BH.unsqueeze(1)) : running_BSH;
}

// Without keys the maximum is undefined; the empty features are returned unchanged.
void add_exponentials(LinearFeatures& features, const LinearProblem& problem) {
  const LinearAttentionConfig& config = problem.config;
  const bool favor = config.feature_map == FeatureMap::kFavor;
  const Projected of = favor ? project(problem.k_BSHD, problem) : Projected{problem.k_BSHD, {}};
  features.g_BSHF = of.products_BTHF;
  if (of.products_BTHF.size(1) == 0) return;
  const at::Tensor exponents =
      masked(of.products_BTHF, problem.call.key_mask_BS, lowest_maximum(of.products_BTHF.scalar_type()));
  const at::Tensor maximum = maximum_of(exponents, problem.call), shift = -maximum.unsqueeze(-1);
  features.g_BSHF =
      favor ? exponentials(exponents, shift + of.minus_half_norm_BTH1, config.feature_eps) : (exponents + shift).exp();
  if (problem.call.direction == Direction::kCausal) features.maximum_BSH = maximum;
}

at::Tensor favor_of_queries(const LinearProblem& problem) {
  const Projected of = project(problem.q_BTHD, problem);
  const at::Tensor largest = of.products_BTHF.amax(-1, /*keepdim=*/true);
  return exponentials(of.products_BTHF, of.minus_half_norm_BTH1 - largest, problem.config.feature_eps);
}

}  // namespace

LinearFeatures features_of(const LinearProblem& problem) {
  const at::Tensor &q = problem.q_BTHD, &k = problem.k_BSHD, &mask_BS = problem.call.key_mask_BS;
  LinearFeatures features;
  switch (problem.config.feature_map) {
    case FeatureMap::kElu: features = {elu_plus_one(q), elu_plus_one(k), {}}; break;
    case FeatureMap::kShenOriginal:  // softmax over the unmasked keys; 0 if all keys are masked
      features = {at::softmax(q, -1), at::softmax(masked(k, mask_BS, lowest_maximum(k.scalar_type())), 1), {}};
      break;
    case FeatureMap::kShen:
    case FeatureMap::kFavor:
      features.f_BTHF =
          problem.config.feature_map == FeatureMap::kShen ? at::softmax(q, -1) : favor_of_queries(problem);
      add_exponentials(features, problem);
      break;
    case FeatureMap::kRelu: features = {relu_features(q, problem), relu_features(k, problem), {}}; break;
    case FeatureMap::kCosine: features = {cosine(q), cosine(k), {}}; break;
  }
  features.g_BSHF = masked(features.g_BSHF, mask_BS, 0);
  return features;
}

}  // namespace rf::nn
