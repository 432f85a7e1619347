// Linear attention on feature vectors by the kernels of core (core/include/rf/linear_attention.h has the equation).
//
// q: [B,T,H,F]; k: [B,S,Hk,F], v: [B,S,Hk,Dv] with H a multiple of Hk; float32, bfloat16 or float16, computed in
// float32 with compensated sums; or float64, by loops over all pairs, the reference. CPU tensors; slices of a larger
// tensor are read without a copy if the last dimension is contiguous. Result: [B,T,H,Dv] in the dtype of q, with first
// derivatives to q, k, v and key_exponents. A query whose denominator is 0 has output 0 and gradient 0. A bad argument
// throws c10::ValueError, "[linear_attention] rule, got value".
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "rf/ops/terms.h"

namespace rf::ops {

struct LinearAttentionCall {
  at::Tensor q, k, v;
  std::string feature_map;                  // "given": q and k are features; "elu": of elu(x) + 1; "relu"
  std::string direction = "bidirectional";  // or "causal": keys up to m + S - T
  std::string denominator = "plain";        // or "rotated": R in both sums
  Rotation query = {}, key = {};            // of the features; float32, or float64 for float64 data; not trained
  std::string layout = "pairs";             // of both: "pairs" or "halves", as in rf/ops/ops.h
  at::Tensor key_mask_BS = {};              // bool, [1 or B, S]; false: not summed, and not read; undefined: all
  double eps = 0;                           // of the denominator
  // [B,S,Hk] of float32, or float64 for float64 data; undefined: 0. The features of key n are e^c_n times k, and both
  // sums are divided by the exponential of the last key's exponent. Exponents of a head and sequence must not decrease
  // from key to key. Requires a causal call with given features.
  at::Tensor key_exponents_BSH = {};
  CuSeqlens cu_seqlens = {};
  // float64 [B,Hk,F,Dv+1], or undefined: the sums over earlier keys of g v^T and, in the last column, of the vectors
  // that f is multiplied with in the denominator; zeros before the first call. With a state the call must be causal,
  // with T = S, and without gradients. With packed sequences, [sequences,..] in place of [B,..].
  at::Tensor state = {};
  // float64 [B,Hk], with key_exponents: the state is divided by their exponentials.
  at::Tensor state_exponents = {};
};

// Replaces the call's state, if defined, by the sums over its keys, too, divided by the exponents of the last keys.
at::Tensor linear_attention_kernel(LinearAttentionCall& call);

}  // namespace rf::ops
