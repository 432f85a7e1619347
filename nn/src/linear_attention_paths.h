// The ways to compute linear attention, behind linear_attention() (rf/nn/linear_attention.h), and their shared code.
#pragma once

#include <vector>

#include "feature_map.h"
#include "rf/nn/linear_attention.h"

namespace rf::nn {

inline constexpr const char* kLinearAttention = "linear_attention";  // for messages

// A call, or one sequence of it, in the dtypes of the caller.
struct LinearProblem {
  at::Tensor q_BTHD, k_BSHD, v_BSHD;
  ops::Terms terms;
  const LinearAttentionConfig& config;
  at::Tensor projection_FD;
  LinearAttentionCall call;
};

// Throws Error for inconsistent arguments.
void check_linear_attention(const LinearProblem& problem);
// Same, for a state with features and values of the given heads and sizes; with_maximum: for causal shen and favor. The
// state has the dtype of the data, or float64.
void check_state(const LinearAttentionState& state, at::ScalarType dtype, const std::vector<int64_t>& sum_shape,
                 bool with_maximum);
// Throws Error if a rotation of the features has more elements than the features.
void check_rotated_size(const at::Tensor& features, const ops::Rotation& rotation);

struct LinearFeatures {
  at::Tensor f_BTHF;
  KeyFeatures keys;
};
// q and k in `dtype`, rotated if the rotation precedes the map.
LinearProblem before_map(const LinearProblem& problem, at::ScalarType dtype);
LinearFeatures features_of(const LinearProblem& problem);
// [B,S,Hk,D] to [B,S,H,D].
at::Tensor for_query_heads(const at::Tensor& x_BSHD, int64_t heads);

// By torch products and sums, each with its autograd.
at::Tensor explicit_linear_attention(const LinearProblem& problem);
// By the kernels of core. dtype: of the sums, float32, or float64 for the reference loops. packed: with a batch of one.
at::Tensor kernel_linear_attention(const LinearProblem& problem, at::ScalarType dtype,
                                   const ops::PackedSequences& packed = {});

}  // namespace rf::nn
