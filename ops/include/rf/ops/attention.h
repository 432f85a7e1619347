// Attention over terms by the kernels of core (core/include/rf/attention.h): in tiles, and by float64 reference loops.
// A bad argument throws c10::ValueError, "[attention] rule, got value".
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include "rf/ops/terms.h"

namespace rf::ops {

// Dropout of the probabilities, equal to ops::dropout of them as one tensor [B,H,T,S]; for packed sequences, of one
// list: the [H,T,S] of the first sequence, then that of the next.
struct ProbabilityDropout {
  double p = 0;
  c10::SymInt seed = 0, stream = 0;
};

struct AttentionCall {
  // [B,T,H,D], [B,S,Hk,D] and [B,S,Hk,Dv] with H a multiple of Hk (Dv = D where a value rotation or V is set), one
  // dtype for all. CPU tensors; slices of a larger one are read without a copy where the last dimension is contiguous.
  at::Tensor q, k, v;
  Terms terms;                                // of any floating-point dtypes
  at::Tensor query_positions, key_positions;  // int64 [1 or B, T] and [1 or B, S]
  // bool, broadcasts to [B,H,T,S] and is not expanded in memory; undefined: all. Together with the window. Keys and
  // values that no query may attend to are not read.
  at::Tensor mask;
  TokenWindow window;
  ProbabilityDropout dropout;
  PackedSequences packed;
};

// [B,T,H,Dv] in the dtype of q, which is float32, bfloat16 or float16; sums, terms and rotations are float32, and
// memory is O(T + S). A query with no key has output 0 and gradient 0. First derivatives, to q, k, v and every term.
at::Tensor attention_fused(const AttentionCall& call);

// The same for any floating-point dtype, computed in float64: slow, and the reference for all other kernels. First
// derivatives, to q, k, v and every term. No dropout.
at::Tensor attention_ref(const AttentionCall& call);

// Throws as the two would, for whoever computes attention in another way; tensors may be on any device.
void check_attention(const AttentionCall& call);
// That part of it which also holds where sizes and values are not known: all tensors are on the device of q.
void check_attention_devices(const AttentionCall& call);

}  // namespace rf::ops
