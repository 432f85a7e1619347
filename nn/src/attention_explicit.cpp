// Attention over terms by torch operations (rf/attention_terms.h has the equation). Scores are computed in the dtype of
// the queries, or in autocast's; autograd gives gradients of any order for every term. Terms in another dtype are
// scaled and their rows selected first, which is cheap and exact in that dtype, and then converted.
#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include "attention_paths.h"
#include "by_distance.h"
#include "rf/ops/ops.h"

namespace rf::nn {

namespace {

// A term times the scale, rounded once.
at::Tensor scaled(const at::Tensor& term, double scale, at::ScalarType dtype) {
  const at::ScalarType wide = at::promote_types(at::promote_types(term.scalar_type(), dtype), at::kFloat);
  return scale == 1 ? term.to(dtype) : (term.to(wide) * scale).to(dtype);
}
DistanceTable scaled(const DistanceTable& table, double scale, at::ScalarType dtype) {
  return {scaled(table.rows, scale, dtype), table.lo, table.hi};
}

// s * ((R q + u) * G[r]) . (R k)
at::Tensor content_scores(const at::Tensor& q_BTHD, const at::Tensor& k_BHSD, const Terms& terms, double scale,
                          AttentionContext::State& state) {
  at::Tensor q_BHTD = rotated(q_BTHD, terms.query, terms.layout).transpose(1, 2);
  q_BHTD = q_BHTD * scale;
  if (terms.content_bias.defined()) {
    q_BHTD = q_BHTD + scaled(terms.content_bias, scale, q_BHTD.scalar_type()).unsqueeze(1);
  }
  if (!terms.gate.defined()) return at::matmul(q_BHTD, k_BHSD.transpose(2, 3));
  if (terms.gate.rows.size(-1) > 1) return gated_products(q_BHTD, k_BHSD, terms.gate, state);
  const at::Tensor products = at::matmul(q_BHTD, k_BHSD.transpose(2, 3));
  const DistanceTable factors = {terms.gate.rows.squeeze(-1), terms.gate.lo, terms.gate.hi};
  return products * numbers_of_rows(factors, state).to(products.scalar_type());
}

// Rows of a [H, positions, D] at the positions of one side: [1 or B, H, tokens, D].
at::Tensor rows_at(const at::Tensor& table_HPD, const at::Tensor& ids_BT) {
  const at::Tensor rows_HND = table_HPD.index_select(1, ids_BT.flatten());
  return rows_HND.unflatten(1, ids_BT.sizes()).transpose(0, 1);
}

// pos(m,n) as [1 or B, H or 1, T, S]; undefined when nothing is set.
at::Tensor position_scores(const Terms& terms, double scale, at::ScalarType dtype, AttentionContext::State& state) {
  at::Tensor scores;
  if (terms.bias.defined()) scores = numbers_of_rows(terms.bias, state).to(dtype);
  if (terms.position_query.defined()) {
    const at::Tensor a = scaled(rows_at(terms.position_query, state.positions.query.ids), scale, dtype),
                     c = rows_at(terms.position_key, state.positions.key.ids).to(dtype);
    const at::Tensor products = at::matmul(a, c.transpose(2, 3));
    scores = scores.defined() ? scores + products : products;
  }
  const at::Tensor &row_H = terms.reset_row, &col_H = terms.reset_col;
  if (!scores.defined() && (row_H.defined() || col_H.defined())) {
    scores = at::zeros({1, 1, state.queries(), state.keys()}, (row_H.defined() ? row_H : col_H).options().dtype(dtype));
  }
  const auto reset = [&](const at::Tensor& number_H, const at::Tensor& at_start) {
    scores = at::where(at_start, number_H.to(dtype).view({1, -1, 1, 1}), scores);
  };
  if (col_H.defined()) reset(col_H, state.positions.key.ids.eq(0).unsqueeze(1).unsqueeze(2));
  if (row_H.defined()) reset(row_H, state.positions.query.ids.eq(0).unsqueeze(1).unsqueeze(3));
  return scores;
}

}  // namespace

at::Tensor explicit_attention(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                              const Terms& terms, AttentionContext::State& state, const AttentionDropout& dropout) {
  const int64_t heads = q_BTHD.size(2);
  const double scale = score_scale(terms, q_BTHD);
  const at::ScalarType dtype = q_BTHD.scalar_type();
  const at::Tensor k_BHSD = heads_first(rotated(k_BSHD, terms.key, terms.layout), heads);
  at::Tensor scores_BHTS = content_scores(q_BTHD, k_BHSD, terms, scale, state);
  if (terms.key_table.defined()) {
    at::Tensor q_BHTD = q_BTHD.transpose(1, 2);
    if (terms.position_bias.defined()) q_BHTD = q_BHTD + terms.position_bias.to(dtype).unsqueeze(1);
    scores_BHTS.add_(query_dot_rows(q_BHTD, scaled(terms.key_table, scale, dtype), state));
  }
  if (terms.query_table.defined()) {
    const at::Tensor plain_BHSD = terms.key.defined() ? heads_first(k_BSHD, heads) : k_BHSD;
    scores_BHTS.add_(key_dot_rows(plain_BHSD, scaled(terms.query_table, scale, dtype), state));
  }
  if (const at::Tensor position = position_scores(terms, scale, scores_BHTS.scalar_type(), state); position.defined()) {
    scores_BHTS.add_(position);
  }
  if (terms.key_score.defined()) scores_BHTS.add_(terms.key_score.to(scores_BHTS.scalar_type()).unsqueeze(2));
  if (terms.pair_bias.defined()) scores_BHTS.add_(terms.pair_bias.to(scores_BHTS.scalar_type()));
  if (const at::Tensor& closed = state.additive_mask(scores_BHTS.scalar_type()); closed.defined()) {
    scores_BHTS.add_(closed);
  }
  at::Tensor weights_BHTS = at::softmax(scores_BHTS, -1);
  if (dropout.p > 0) {
    weights_BHTS =
        ops::dropout(weights_BHTS, dropout.p, static_cast<int64_t>(dropout.key->seed), dropout.key->next_stream());
  }
  at::Tensor out_BHTD = at::matmul(weights_BHTS, heads_first(rotated(v_BSHD, terms.value, terms.layout), heads));
  if (terms.value_table.defined()) {
    out_BHTD = out_BHTD + sum_of_rows(weights_BHTS, scaled(terms.value_table, 1, weights_BHTS.scalar_type()), state);
  }
  return out_BHTD.transpose(1, 2).to(dtype);
}

}  // namespace rf::nn
