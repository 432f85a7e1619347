// Linear attention by torch operations (linear_attention_paths.h). It supports derivatives of any order, also through a
// state, the running maxima of causal shen and favor, and float64. Numerator and denominator use the same sum; the
// denominator's values are 1. Only the rotation may differ, which one place decides.
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>

#include "attention_paths.h"
#include "linear_attention_paths.h"
#include "linear_sums.h"

namespace rf::nn {

namespace {

at::Tensor rotated_features(const at::Tensor& features, const Rotation& rotation, const std::string& layout) {
  check_rotated_size(features, rotation);
  return rotated(features, rotation, layout);
}

at::Tensor heads_first(const at::Tensor& x_BTHD) { return x_BTHD.transpose(1, 2); }

// num / den, 0 with gradient 0 where den is 0.
at::Tensor quotient(const at::Tensor& num_BHTD, const at::Tensor& den_BHT1) {
  const at::Tensor empty = den_BHT1.eq(0);
  return (num_BHTD / den_BHT1.masked_fill(empty, 1)).masked_fill(empty, 0);
}

// In the dtype of the sums that follow.
void make_ready(LinearAttentionState& state, const SumInput& in) {
  if (in.k_BHSF.size(2) == 0) return;
  const at::ScalarType dtype = in.q_BHTF.scalar_type();
  check_state(state, dtype, {in.q_BHTF.size(0), in.q_BHTF.size(1), in.q_BHTF.size(3), in.v_BHSD.size(3)},
              in.maximum_BHS.defined());
  for (at::Tensor* x : {&state.sum_BHFD, &state.norm_BHF1, &state.maximum_BH}) {
    if (x->defined()) *x = x->to(dtype);
  }
}

}  // namespace

at::Tensor explicit_linear_attention(const LinearProblem& given) {
  const LinearAttentionConfig& config = given.config;
  LinearProblem problem = before_map(given, ops::row_dtype(given.q_BTHD.scalar_type()));
  const int64_t heads = problem.q_BTHD.size(2);
  problem.k_BSHD = for_query_heads(problem.k_BSHD, heads);
  problem.v_BSHD = for_query_heads(problem.v_BSHD, heads);
  LinearAttentionState none;
  LinearAttentionState& state = problem.call.state != nullptr ? *problem.call.state : none;
  const auto [f_BTHF, keys] = features_of(problem);
  at::Tensor rotated_f_BTHF = f_BTHF, rotated_g_BSHF = keys.rows_BSHF;
  if (config.rope_site == RopeSite::kAfterMap) {
    rotated_f_BTHF = rotated_features(f_BTHF, problem.terms.query, problem.terms.layout);
    Rotation key = problem.terms.key;
    if (key.defined() && key.cos.dim() == 4 && key.cos.size(2) > 1) {  // of the keys' heads
      key = {for_query_heads(key.cos, heads), for_query_heads(key.sin, heads)};
    }
    rotated_g_BSHF = rotated_features(keys.rows_BSHF, key, problem.terms.layout);
  }
  SumInput over{heads_first(rotated_f_BTHF), heads_first(rotated_g_BSHF), heads_first(problem.v_BSHD),
                keys.maximum_BSH.defined() ? heads_first(keys.maximum_BSH) : at::Tensor()};
  SumInput under = over;
  under.v_BHSD = at::ones_like(over.v_BHSD.narrow(3, 0, 1));
  if (!config.rotate_denominator) {
    under.q_BHTF = heads_first(f_BTHF);
    under.k_BHSF = heads_first(keys.rows_BSHF);
  }
  at::Tensor num_BHTD, den_BHT1;
  if (problem.call.direction == Direction::kCausal) {
    make_ready(state, over);
    num_BHTD = causal_sum(over, state.sum_BHFD, state.maximum_BH);
    den_BHT1 = causal_sum(under, state.norm_BHF1, state.maximum_BH);
    if (over.maximum_BHS.defined() && over.maximum_BHS.size(2) > 0) state.maximum_BH = over.maximum_BHS.select(2, -1);
  } else {
    num_BHTD = sum_over_keys(over);
    den_BHT1 = sum_over_keys(under);
  }
  if (config.eps > 0) den_BHT1 = den_BHT1 + config.eps;
  return heads_first(quotient(num_BHTD, den_BHT1)).to(given.q_BTHD.scalar_type());
}

}  // namespace rf::nn
