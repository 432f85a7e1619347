// Linear attention by the kernels of core (linear_attention_paths.h). The kernel computes elu + 1 itself; torch
// operations with autograd compute the features of the other maps, and rotations before the map, in float32. Features
// of causal shen and favor are divided by exponentials of running maxima, which the kernel receives as exponents of its
// keys.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "known_values.h"
#include "linear_attention_paths.h"
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

std::vector<int64_t> counts_of(const at::Tensor& ends) {
  const at::Tensor lengths = ends.to(at::kCPU, at::kLong).diff().contiguous();
  const auto* const first = cpu_data<int64_t>(lengths, "cu_seqlens");
  return {first, first + lengths.numel()};
}

// Features of packed sequences, computed sequence by sequence if the features of a key depend on other keys.
LinearFeatures features_of_packed(const LinearProblem& problem, const ops::PackedSequences& packed) {
  const FeatureMap map = problem.config.feature_map;
  const bool depend = map == FeatureMap::kShen || map == FeatureMap::kShenOriginal || map == FeatureMap::kFavor;
  if (!packed.defined() || !depend || packed.cu_seqlens_q.size(0) <= 2) return features_of(problem);
  const std::vector<int64_t> queries = counts_of(packed.cu_seqlens_q), keys = counts_of(packed.cu_seqlens_k);
  const auto q = problem.q_BTHD.split_with_sizes(queries, 1), k = problem.k_BSHD.split_with_sizes(keys, 1);
  std::vector<at::Tensor> masks(keys.size());
  if (problem.call.key_mask_BS.defined()) masks = problem.call.key_mask_BS.split_with_sizes(keys, 1);
  std::vector<at::Tensor> f, g, maxima;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (queries[i] == 0 && keys[i] == 0) continue;
    LinearProblem own = problem;
    own.q_BTHD = q[i], own.k_BSHD = k[i], own.call.key_mask_BS = masks[i];
    const LinearFeatures features = features_of(own);
    f.push_back(features.f_BTHF), g.push_back(features.keys.rows_BSHF);
    if (features.keys.maximum_BSH.defined()) maxima.push_back(features.keys.maximum_BSH);
  }
  if (f.empty()) return features_of(problem);
  return {at::cat(f, 1), {at::cat(g, 1), maxima.empty() ? at::Tensor() : at::cat(maxima, 1)}};
}

// A call with a state, whose sums are extended by the call's keys.
at::Tensor extend(LinearAttentionState& state, at::ScalarType dtype, const at::Tensor& q_BTHF, const at::Tensor& k_BSHF,
                  const at::Tensor& v_BSHD, const ops::LinearAttentionOptions& options) {
  const int64_t values = v_BSHD.size(3);
  const std::vector<int64_t> shape = {q_BTHF.size(0), q_BTHF.size(2), q_BTHF.size(3), values};
  const at::Tensor& exponents_BSH = options.key_exponents_BSH;
  check_state(state, dtype, shape, exponents_BSH.defined());
  at::Tensor sums = sums_of(state, shape, q_BTHF.device()), state_exponents;
  if (exponents_BSH.defined()) {
    state_exponents = state.maximum_BH.defined() ? state.maximum_BH.to(at::kDouble)
                                                 : at::full({shape[0], shape[1]}, -INFINITY, sums.options());
  }
  const at::Tensor out = ops::linear_attention_kernel(q_BTHF, k_BSHF, v_BSHD, options, &sums, state_exponents);
  state.sum_BHFD = sums.narrow(-1, 0, values);
  state.norm_BHF1 = sums.narrow(-1, values, 1);
  if (exponents_BSH.defined() && exponents_BSH.size(1) > 0) state.maximum_BH = exponents_BSH.select(1, -1);
  return out;
}

}  // namespace

at::Tensor kernel_linear_attention(const LinearProblem& given, at::ScalarType dtype,
                                   const ops::PackedSequences& packed) {
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
  at::Tensor q_BTHF = problem.q_BTHD, k_BSHF = problem.k_BSHD;
  at::Tensor exponents_BSH;
  if (!maps_inside) {
    const auto [f_BTHF, keys] = features_of_packed(problem, packed);
    q_BTHF = f_BTHF, k_BSHF = keys.rows_BSHF, exponents_BSH = keys.maximum_BSH;
  }
  ops::LinearAttentionOptions options{.feature_map = maps_inside ? "elu" : "given"};
  options.direction = problem.call.direction == Direction::kCausal ? "causal" : "bidirectional";
  options.denominator = config.rotate_denominator ? "rotated" : "plain";
  options.layout = problem.terms.layout;
  if (config.rope_site == RopeSite::kAfterMap) {
    options.query = rows_for(problem.terms.query, q_BTHF);
    options.key = rows_for(problem.terms.key, k_BSHF);
  }
  options.key_mask_BS = problem.call.key_mask_BS;
  options.eps = config.eps;
  options.key_exponents_BSH = exponents_BSH;
  options.packed = packed;
  const at::Tensor out =
      extends ? extend(*problem.call.state, ops::row_dtype(asked), q_BTHF, k_BSHF, problem.v_BSHD, options)
              : ops::linear_attention_kernel(q_BTHF, k_BSHF, problem.v_BSHD, options);
  return out.to(asked);
}

}  // namespace rf::nn
