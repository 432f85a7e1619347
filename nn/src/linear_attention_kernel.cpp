// Linear attention by the kernels of core (linear_attention_paths.h): the map elu + 1 is made inside, in place of
// reading features; those of the other maps, and rotations before the map, are made by operations of torch, in float32,
// and with their autograd.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "linear_attention_paths.h"
#include "rf/ops/linear_attention.h"

namespace rf::nn {

namespace {

// [B,H,F,Dv+1], of float64 whatever the data: sums of any number of keys keep their small ones.
at::Tensor sums_of(const LinearAttentionState& state, const std::vector<int64_t>& shape) {
  if (state.sum_BHFD.defined()) return at::cat({state.sum_BHFD, state.norm_BHF1}, -1).to(at::kDouble);
  return at::zeros({shape[0], shape[1], shape[2], shape[3] + 1}, at::kDouble);
}

ops::Rotation rows_for(const ops::Rotation& rotation, const at::Tensor& features) {
  check_rotated_size(features, rotation);
  if (!rotation.defined()) return rotation;
  const at::ScalarType dtype = ops::row_dtype(features.scalar_type());
  return {rotation.cos.to(dtype), rotation.sin.to(dtype)};
}

}  // namespace

at::Tensor kernel_linear_attention(const LinearProblem& given, at::ScalarType dtype) {
  const LinearAttentionConfig& config = given.config;
  const at::ScalarType asked = given.q_BTHD.scalar_type();
  const bool rotates_before =
      config.rope_site == RopeSite::kBeforeMap && (given.terms.query.defined() || given.terms.key.defined());
  const bool maps_inside = config.feature_map == FeatureMap::kElu;
  const bool reads_as_given = maps_inside && !rotates_before && dtype == at::kFloat;
  LinearProblem problem = before_map(given, reads_as_given ? asked : dtype);
  LinearAttentionState* const state = problem.call.state;
  if (state != nullptr) {  // which has a sum for each query head
    problem.k_BSHD = for_query_heads(problem.k_BSHD, problem.q_BTHD.size(2));
    problem.v_BSHD = for_query_heads(problem.v_BSHD, problem.q_BTHD.size(2));
  }
  at::Tensor q_BTHF = problem.q_BTHD, k_BSHF = problem.k_BSHD;
  if (!maps_inside) {
    const auto [f_BTHF, keys] = features_of(problem);
    q_BTHF = f_BTHF, k_BSHF = keys.rows_BSHF;
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
  if (state == nullptr) return ops::linear_attention_kernel(q_BTHF, k_BSHF, problem.v_BSHD, options).to(asked);

  const int64_t values = problem.v_BSHD.size(3);
  const std::vector<int64_t> shape = {q_BTHF.size(0), q_BTHF.size(2), q_BTHF.size(3), values};
  check_state(*state, ops::row_dtype(asked), shape, /*with_maximum=*/false);
  at::Tensor sums = sums_of(*state, shape);
  const at::Tensor out = ops::linear_attention_kernel(q_BTHF, k_BSHF, problem.v_BSHD, options, &sums);
  state->sum_BHFD = sums.narrow(-1, 0, values);
  state->norm_BHF1 = sums.narrow(-1, values, 1);
  return out.to(asked);
}

}  // namespace rf::nn
