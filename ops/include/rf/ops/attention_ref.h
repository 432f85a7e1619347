// Attention over terms by the float64 reference loops (core/include/rf/attention.h): slow, and what other paths are
// held to.
#pragma once

#include <ATen/core/Tensor.h>

#include "rf/ops/terms.h"

namespace rf::ops {

// q: [B,T,H,D]; k: [B,S,Hk,D], v: [B,S,Hk,Dv] with H a multiple of Hk (Dv = D where a value rotation or V is set).
// q, k, v and terms: any floating-point dtypes; everything is computed in float64. CPU tensors.
// query_positions: int64 [1 or B, T]; key_positions: int64 [1 or B, S].
// attend: bool, broadcasts to [B,H,T,S]; undefined: all. Together with the window. A query with no key: output 0.
// Result: [B,T,H,Dv] in the dtype of q. First derivatives to q, k, v and every term tensor.
// A bad argument throws c10::ValueError, "[attention] rule, got value".
at::Tensor attention_ref(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                         const Terms& terms, const at::Tensor& query_positions, const at::Tensor& key_positions,
                         const at::Tensor& attend, TokenWindow window);

}  // namespace rf::ops
