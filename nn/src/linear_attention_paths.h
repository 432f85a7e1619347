// The ways to compute linear attention, behind linear_attention() (rf/nn/linear_attention.h), and their shared code.
#pragma once

#include <vector>

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

// The feature maps f (queries) and g (keys) of linear attention (rf/nn/linear_attention.h), x one vector of D elements:
//
//   elu            f = g = elu(x) + 1                                       Katharopoulos et al., arXiv 2006.16236
//   shen_original  f = softmax(x), g = exp(x) / sum over keys of exp(x)     Shen et al., arXiv 1812.01243
//   shen           f = softmax(x), g = exp(x)                               Eq. 18's reading of it: not the same
//   favor          f = g = (exp(w_j.x' - |x'|^2 / 2) + eps) / sqrt(m)       Choromanski et al., arXiv 2009.14794
//   relu           f = g = relu(w_j.x') + eps                               the same, section on generalized attention
//   cosine         f = g = (x / |x|, 1), so f.g = 1 + cos                   kexue.fm/archives/8265
//
// with x' = sqrt(s) x, s = 1/sqrt(D) unless the terms define a scale, and w_j the rows of the projection. Products f.g
// are not scaled otherwise. favor and shen divide their exponentials by the exponential of a maximum. This cancels in
// the quotient of the two sums, except for favor's eps and a one added to the denominator. favor divides f by the
// largest w_j.x' of that query. g is divided by the largest exponent over features and keys; if causal, over the keys
// up to its own, and the sums (including eps) are rescaled from key to key.
struct LinearFeatures {
  at::Tensor f_BTHF;
  at::Tensor g_BSHF;       // 0 for masked keys
  at::Tensor maximum_BSH;  // causal shen and favor: the features g of key n are divided by its exponential; otherwise
                           // undefined
};
// q and k in `dtype`, rotated if the rotation precedes the map.
LinearProblem before_map(const LinearProblem& problem, at::ScalarType dtype);
LinearFeatures features_of(const LinearProblem& problem);
// [B,S,Hk,D] to [B,S,H,D].
at::Tensor for_query_heads(const at::Tensor& x_BSHD, int64_t heads);

// Numbers of tokens of packed sequences, in a batch of one.
struct SequenceLengths {
  std::vector<int64_t> queries, keys;
};
// The problem of each sequence.
std::vector<LinearProblem> split_sequences(const LinearProblem& row, const SequenceLengths& lengths);

// By torch products and sums, each with its autograd.
at::Tensor explicit_linear_attention(const LinearProblem& problem);
// By the kernels of core. dtype: of the sums, float32, or float64 for the reference loops. packed: nullptr: one
// sequence for each row.
at::Tensor kernel_linear_attention(const LinearProblem& problem, at::ScalarType dtype,
                                   const SequenceLengths* packed = nullptr);

}  // namespace rf::nn
