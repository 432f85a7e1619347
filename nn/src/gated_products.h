// sum_d q_m[d] G[r(m,n)][d] k_n[d]: the content score under a gate whose rows are vectors (rf/ops/terms.h). Queries are
// processed in chunks, and the backward recomputes their gates, so memory is bounded by [queries, S, D] per chunk.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention_state.h"

namespace rf::nn {

// q: [B,H,T,D], k: [B,H,S,D], gate rows [H or 1, rows, D]. Result: [B,H,T,S] in the dtype of q, also under autocast.
// Gradients of any order.
at::Tensor gated_products(const at::Tensor& q_BHTD, const at::Tensor& k_BHSD, const DistanceTable& gate,
                          AttentionContext::State& state);

}  // namespace rf::nn
