// The ways to compute linear attention, behind linear_attention() (rf/nn/linear_attention.h), and what they share.
#pragma once

#include <string>
#include <vector>

#include "feature_map.h"
#include "rf/nn/linear_attention.h"

namespace rf::nn {

inline constexpr const char* kLinearAttention = "linear_attention";  // of messages

// A call, or one sequence of it; dtypes are those of the caller.
struct LinearProblem {
  at::Tensor q_BTHD, k_BSHD, v_BSHD;
  ops::Terms terms;
  const LinearAttentionConfig& config;
  at::Tensor projection_FD;
  LinearAttentionCall call;
};

// Throws Error for arguments that do not fit each other.
void check_linear_attention(const LinearProblem& problem);
// The same for a state with features and values of these heads and sizes; with_maximum: as causal shen and favor have
// it. State and data are of one dtype, or the state is float64.
void check_state(const LinearAttentionState& state, at::ScalarType dtype, const std::vector<int64_t>& sum_shape,
                 bool with_maximum);
// Throws Error where a rotation of the features has more elements than there are.
void check_rotated_size(const at::Tensor& features, const ops::Rotation& rotation);

struct LinearFeatures {
  at::Tensor f_BTHF;
  KeyFeatures keys;
};
// What q and k are in `dtype`, rotated where the rotation is before the map.
LinearProblem before_map(const LinearProblem& problem, at::ScalarType dtype);
LinearFeatures features_of(const LinearProblem& problem);
// [B,S,Hk,D] to [B,S,H,D].
at::Tensor for_query_heads(const at::Tensor& x_BSHD, int64_t heads);

// Products and sums of torch, each with its autograd.
at::Tensor explicit_linear_attention(const LinearProblem& problem);
// By the kernels of core; dtype: that of the sums, float32, or float64 for the loops of the reference. packed: of a
// batch of one.
at::Tensor kernel_linear_attention(const LinearProblem& problem, at::ScalarType dtype,
                                   const ops::PackedSequences& packed = {});

}  // namespace rf::nn
