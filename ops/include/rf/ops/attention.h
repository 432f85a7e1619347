// Attention over terms by the kernels of core (core/include/rf/attention.h): in tiles, and by float64 reference loops.
//
// q: [B,T,H,D]; k: [B,S,Hk,D], v: [B,S,Hk,Dv] with H a multiple of Hk (Dv = D where a value rotation or V is set), one
// dtype for all. CPU tensors; slices of a larger one are read without a copy where the last dimension is contiguous.
// Terms: any floating-point dtypes. query_positions: int64 [1 or B, T]; key_positions: int64 [1 or B, S].
// attend: bool, broadcasts to [B,H,T,S] and is not expanded in memory; undefined: all. Together with the window. A
// query with no key has output 0 and gradient 0; keys and values that no query may attend to are not read. Result:
// [B,T,H,Dv] in the dtype of q. First derivatives only. A bad argument throws c10::ValueError, "[attention] rule, got
// value".
#pragma once

#include <ATen/core/Tensor.h>

#include "rf/ops/terms.h"

namespace rf::ops {

// Dropout of the probabilities, equal to ops::dropout of them as one tensor [B,H,T,S]; for packed sequences, of one
// list: the [H,T,S] of the first sequence, then that of the next.
struct ProbabilityDropout {
  double p = 0;
  int64_t seed = 0, stream = 0;
};

// q, k, v: float32, bfloat16 or float16; sums, terms and rotations are float32, and memory is O(T + S). Derivatives to
// q, k, v and every term but rotations. No gate.
at::Tensor attention_fused(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                           const Terms& terms, const at::Tensor& query_positions, const at::Tensor& key_positions,
                           const at::Tensor& attend, TokenWindow window, const ProbabilityDropout& dropout,
                           const PackedSequences& packed = {});

// Slow, and the reference for all other kernels: everything is computed in float64. Derivatives to q, k, v and every
// term.
at::Tensor attention_ref(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                         const Terms& terms, const at::Tensor& query_positions, const at::Tensor& key_positions,
                         const at::Tensor& attend, TokenWindow window, const PackedSequences& packed = {});

}  // namespace rf::ops
