// Between a table's rows and pairs (m, n): the row of a pair is r(m,n) = clamp(p_m - p_n, lo, hi) - lo. If positions
// step by 1, the pairs of one distance form a diagonal, and products with the rows are shifted into place; otherwise
// they are gathered. Both ways give the same numbers and can be differentiated any number of times.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention_state.h"
#include "rf/ops/terms.h"

namespace rf::nn {

// x_m . rows[r(m,n)]: x_BHTD and rows [H or 1, rows, D] give [B,H,T,S].
at::Tensor query_dot_rows(const at::Tensor& x_BHTD, const DistanceTable& table, AttentionContext::State& state);
// x_n . rows[r(m,n)]: x_BHSD gives [B,H,T,S].
at::Tensor key_dot_rows(const at::Tensor& x_BHSD, const DistanceTable& table, AttentionContext::State& state);
// sum_n x(m,n) rows[r(m,n)]: x_BHTS gives [B,H,T,D].
at::Tensor sum_of_rows(const at::Tensor& x_BHTS, const DistanceTable& table, AttentionContext::State& state);
// rows[r(m,n)] for rows [H or 1, rows], numbers: [1 or B, H or 1, T, S].
at::Tensor numbers_of_rows(const DistanceTable& table, AttentionContext::State& state);

// sum_d q_m[d] G[r(m,n)][d] k_n[d], the content score under a gate whose rows are vectors (rf/ops/terms.h): q
// [B,H,T,D], k [B,H,S,D] and gate rows [H or 1, rows, D] give [B,H,T,S] in the dtype of q, also under autocast. Queries
// are processed in chunks, and the backward recomputes their gates, so memory is bounded by [queries, S, D] per chunk.
at::Tensor gated_products(const at::Tensor& q_BHTD, const at::Tensor& k_BHSD, const DistanceTable& gate,
                          AttentionContext::State& state);

}  // namespace rf::nn
