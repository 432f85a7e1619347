// Attention over terms by the kernels of core (core/include/rf/attention.h): in tiles, and by float64 reference loops.
// A bad argument throws c10::ValueError, "[attention] rule, got value".
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include "rf/ops/terms.h"

namespace rf::ops {

struct AttentionCall {
  // [B,T,H,D], [B,S,Hk,D] and [B,S,Hk,Dv] with H a multiple of Hk (Dv = D with a value rotation or V), all of one
  // dtype. CPU tensors; slices of a larger tensor are read without a copy if the last dimension is contiguous.
  at::Tensor q, k, v;
  Terms terms;                                // of any floating-point dtypes
  at::Tensor query_positions, key_positions;  // int64 [1 or B, T] and [1 or B, S]
  // bool, broadcasts to [B,H,T,S] without being expanded in memory; undefined: all keys. Combined with the window. Keys
  // and values that no query may attend to are not read.
  at::Tensor mask;
  TokenWindow window;
  CuSeqlens cu_seqlens;
  // The probability of dropout of the probabilities, equal to ops::dropout of one tensor [B,H,T,S]. For packed
  // sequences it equals ops::dropout of one list: the [H,T,S] of the first sequence, then of the next one, and so on.
  double dropout = 0;
  c10::SymInt seed = 0, stream = 0;
};

// [B,T,H,Dv] in the dtype of q, which is float32, bfloat16 or float16; sums, terms and rotations are float32, and
// memory is O(T + S). A query without keys has output 0 and gradient 0. First derivatives, to q, k, v and every term.
at::Tensor attention_fused(const AttentionCall& call);

// The same for any floating-point dtype, computed in float64: slow, and the reference for all other kernels. First
// derivatives, to q, k, v and every term. No dropout.
at::Tensor attention_ref(const AttentionCall& call);

// Throws like the two functions above, for code that computes attention in another way; tensors may be on any device.
void check_attention(const AttentionCall& call);
// That part of it which also holds where sizes and values are not known: all tensors are on the device of q.
void check_attention_devices(const AttentionCall& call);

}  // namespace rf::ops
