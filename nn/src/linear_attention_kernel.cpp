// Linear attention by the kernels of core (linear_attention_paths.h). The kernel computes elu + 1 itself; torch
// operations with autograd compute the features of the other maps, and rotations before the map, in float32. Features
// of causal shen and favor are divided by exponentials of running maxima, which the kernel receives as exponents of its
// keys.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "linear_attention_paths.h"
#include "rf/nn/devices.h"
#include "rf/ops/linear_attention.h"

namespace rf::nn {

namespace {

// [B,H,F,Dv+1], float64 for any dtype of the data, so that sums over many keys keep small contributions.
at::Tensor sums_of(const LinearAttentionState& state, const std::vector<int64_t>& shape, at::Device device) {
  if (state.sum_BHFD.defined()) return at::cat({state.sum_BHFD, state.norm_BHF1}, -1).to(at::kDouble);
  return at::zeros({shape[0], shape[1], shape[2], shape[3] + 1}, at::dtype(at::kDouble).device(device));
}

ops::Rotation rows_for(const ops::Rotation& rotation, const at::Tensor& features) {
  check_rotated_size(features, rotation);
  if (!rotation.defined()) return rotation;
  const at::ScalarType dtype = ops::row_dtype(features.scalar_type());
  return {rotation.cos.to(dtype), rotation.sin.to(dtype)};
}

at::Tensor offsets_of(const std::vector<int64_t>& lengths, at::Device device) {
  std::vector<int64_t> offsets{0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return on_device(at::tensor(offsets, at::kLong), device);
}

// Features of packed sequences, computed sequence by sequence if the features of a key depend on other keys.
LinearFeatures features_of_packed(const LinearProblem& problem, const SequenceLengths* packed) {
  const FeatureMap map = problem.config.feature_map;
  const bool depend = map == FeatureMap::kShen || map == FeatureMap::kShenOriginal || map == FeatureMap::kFavor;
  if (packed == nullptr || !depend || packed->keys.size() <= 1) return features_of(problem);
  std::vector<at::Tensor> f, g, maxima;
  for (const LinearProblem& own : split_sequences(problem, *packed)) {
    if (own.q_BTHD.size(1) == 0 && own.k_BSHD.size(1) == 0) continue;
    const LinearFeatures features = features_of(own);
    f.push_back(features.f_BTHF), g.push_back(features.g_BSHF);
    if (features.maximum_BSH.defined()) maxima.push_back(features.maximum_BSH);
  }
  if (f.empty()) return features_of(problem);
  return {at::cat(f, 1), at::cat(g, 1), maxima.empty() ? at::Tensor() : at::cat(maxima, 1)};
}

// A call with a state, whose sums are extended by the call's keys. dtype: of the data.
at::Tensor extend(LinearAttentionState& state, at::ScalarType dtype, ops::LinearAttentionCall& call) {
  const int64_t values = call.v.size(3);
  const std::vector<int64_t> shape = {call.q.size(0), call.q.size(2), call.q.size(3), values};
  const at::Tensor& exponents_BSH = call.key_exponents_BSH;
  if (call.q.size(1) == 0 && call.k.size(1) == 0) return call.v;  // no tokens
  check_state(state, dtype, shape, exponents_BSH.defined());
  call.state = sums_of(state, shape, call.q.device());
  if (exponents_BSH.defined()) {
    call.state_exponents = state.maximum_BH.defined() ? state.maximum_BH.to(at::kDouble)
                                                      : at::full({shape[0], shape[1]}, -INFINITY, call.state.options());
  }
  const at::Tensor out = ops::linear_attention_kernel(call);
  state.sum_BHFD = call.state.narrow(-1, 0, values);
  state.norm_BHF1 = call.state.narrow(-1, values, 1);
  if (exponents_BSH.defined() && exponents_BSH.size(1) > 0) state.maximum_BH = exponents_BSH.select(1, -1);
  return out;
}

}  // namespace

at::Tensor kernel_linear_attention(const LinearProblem& given, at::ScalarType dtype, const SequenceLengths* packed) {
  const LinearAttentionConfig& config = given.config;
  const at::ScalarType asked = given.q_BTHD.scalar_type();
  const bool rotates_before =
      config.rope_site == RopeSite::kBeforeMap && (given.terms.query.defined() || given.terms.key.defined());
  const bool maps_inside = config.feature_map == FeatureMap::kElu;
  const bool reads_as_given = maps_inside && !rotates_before && dtype == at::kFloat;
  LinearProblem problem = before_map(given, reads_as_given ? asked : dtype);
  const bool extends = problem.call.state != nullptr;
  if (extends && problem.call.state->maximum_BH.defined()) {
    problem.call.state->maximum_BH = problem.call.state->maximum_BH.to(dtype);
  }
  if (extends) {  // which has a sum for each query head
    problem.k_BSHD = for_query_heads(problem.k_BSHD, problem.q_BTHD.size(2));
    problem.v_BSHD = for_query_heads(problem.v_BSHD, problem.q_BTHD.size(2));
  }
  ops::LinearAttentionCall call{.q = problem.q_BTHD,
                                .k = problem.k_BSHD,
                                .v = problem.v_BSHD,
                                .feature_map = maps_inside ? "elu" : "given",
                                .direction = problem.call.direction == Direction::kCausal ? "causal" : "bidirectional",
                                .denominator = config.rotate_denominator ? "rotated" : "plain",
                                .layout = problem.terms.layout,
                                .key_mask_BS = problem.call.key_mask_BS,
                                .eps = config.eps};
  if (!maps_inside) {
    const auto [f_BTHF, g_BSHF, maximum_BSH] = features_of_packed(problem, packed);
    call.q = f_BTHF, call.k = g_BSHF, call.key_exponents_BSH = maximum_BSH;
  }
  if (config.rope_site == RopeSite::kAfterMap) {
    call.query = rows_for(problem.terms.query, call.q);
    call.key = rows_for(problem.terms.key, call.k);
  }
  if (packed != nullptr) {
    const at::Device device = call.q.device();
    call.cu_seqlens = {offsets_of(packed->queries, device), offsets_of(packed->keys, device)};
  }
  const at::Tensor out =
      extends ? extend(*problem.call.state, ops::row_dtype(asked), call) : ops::linear_attention_kernel(call);
  return out.to(asked);
}

}  // namespace rf::nn
