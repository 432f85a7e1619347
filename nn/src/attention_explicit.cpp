// Attention over terms by torch operations (rf/attention_terms.h has the equation). Scores are computed in the dtype of
// the queries, or in autocast's; autograd gives gradients of any order for every term. Terms in another dtype are
// scaled and their rows selected first, which is cheap and exact in that dtype, and then converted.
//
// Between a table's rows and pairs (m, n): the row of a pair is r(m,n) = clamp(p_m - p_n, lo, hi) - lo. If positions
// step by 1, the pairs of one distance form a diagonal, and products with the rows are shifted into place; otherwise
// they are gathered. Both ways give the same numbers and can be differentiated any number of times.
//
// A shift: with x [.., A, A+B-1], element (a, b) of the result is
// x[a, b - a + A-1]. In memory, the elements wanted from successive rows begin at intervals of A+B-2, so the result is
// a view of x with rows of that length:
//
//     x, A = 3, B = 2     . . 0 1     (dots: not wanted)     from the third element on, in rows of 3:   0 1 .
//                         . 2 3 .                                                                       2 3 .
//                         4 5 . .                                                                       4 5 .
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "attention_state.h"
#include "known_values.h"
#include "layer_parameters.h"
#include "rf/ops/ops.h"

namespace rf::nn {

namespace {

// For sums of many numbers of dtype, as in the backward of a gather: 16-bit sums stop growing.
at::ScalarType sum_type(at::ScalarType dtype) { return at::isReducedFloatingType(dtype) ? at::kFloat : dtype; }

at::Tensor shifted(const at::Tensor& x, int64_t to) {
  const int64_t rows = x.size(-2), width = x.size(-1);
  if (rows == 1) return x;
  return x.flatten(-2).narrow(-1, rows - 1, rows * (width - 1)).unflatten(-1, {rows, width - 1}).narrow(-1, 0, to);
}

// The transpose of `shifted`; other elements are zeros.
at::Tensor shifted_back(const at::Tensor& x) {
  const int64_t rows = x.size(-2), from = x.size(-1), width = rows + from - 1;
  if (rows == 1) return x;
  const at::Tensor flat = at::constant_pad_nd(x, {0, width - 1 - from}).flatten(-2);
  return at::constant_pad_nd(flat, {rows - 1, 1}).unflatten(-1, {rows, width});
}

// The table rows for distances first .. first+count-1: a slice of the table, with its first row repeated `before` more
// times and its last row `after` more times.
struct Run {
  at::Tensor rows;  // [H or 1, rows, ..]
  int64_t before = 0, after = 0;
};
Run run_of_rows(const DistanceTable& table, int64_t first, int64_t count) {
  const int64_t last = first + count - 1;
  const int64_t lowest = std::clamp(first, table.lo, table.hi), highest = std::clamp(last, table.lo, table.hi);
  const int64_t before = std::max<int64_t>(0, std::min(last, lowest) - first), rows = highest - lowest + 1;
  return {table.rows.narrow(1, lowest - table.lo, rows), before, count - before - rows};
}

// Columns by distance, with the outer columns repeated.
at::Tensor widened(const at::Tensor& x, int64_t before, int64_t after) {
  if (before == 0 && after == 0) return x;
  const auto repeated = [&](int64_t column, int64_t times) {
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = times;
    return x.narrow(-1, column, 1).expand(shape);
  };
  return at::cat({repeated(0, before), x, repeated(x.size(-1) - 1, after)}, -1);
}

// The transpose of `widened`.
at::Tensor narrowed(const at::Tensor& x, int64_t before, int64_t after) {
  if (before == 0 && after == 0) return x;
  const int64_t rows = x.size(-1) - before - after;
  const at::Tensor inner = x.narrow(-1, before, rows);
  const at::Tensor low = x.narrow(-1, 0, before).sum(-1, true), high = x.narrow(-1, before + rows, after).sum(-1, true);
  if (rows == 1) return inner + low + high;
  return at::cat({inner.narrow(-1, 0, 1) + low, inner.narrow(-1, 1, rows - 2), inner.narrow(-1, rows - 1, 1) + high},
                 -1);
}

// Distances decrease along the keys of a query, so the run is reversed.
Run run_for_queries(const DistanceTable& table, AttentionContext::State& state) {
  const int64_t keys = state.keys(), queries = state.queries();
  Run run = run_of_rows(table, *state.first_of_steps() - (keys - 1), queries + keys - 1);
  run.rows = run.rows.flip(1);
  std::swap(run.before, run.after);
  return run;
}

// [1 or B, T, S] as [B, H, T, S].
at::Tensor for_heads(const at::Tensor& index_BTS, const at::Tensor& like_BHxx) {
  return index_BTS.unsqueeze(1).expand({like_BHxx.size(0), like_BHxx.size(1), -1, -1});
}

at::Tensor gathered(const at::Tensor& x_BHxR, const at::Tensor& index_Bxy) {
  return x_BHxR.to(sum_type(x_BHxR.scalar_type())).gather(-1, for_heads(index_Bxy, x_BHxR)).to(x_BHxR.scalar_type());
}

// x_m . rows[r(m,n)]: x_BHTD and rows [H or 1, rows, D] give [B,H,T,S].
at::Tensor query_dot_rows(const at::Tensor& x_BHTD, const DistanceTable& table, AttentionContext::State& state) {
  if (state.first_of_steps()) {
    const Run run = run_for_queries(table, state);
    return shifted(widened(at::matmul(x_BHTD, run.rows.transpose(1, 2)), run.before, run.after), state.keys());
  }
  return gathered(at::matmul(x_BHTD, table.rows.transpose(1, 2)), state.rows_by_distance(table.lo, table.hi));
}

// x_n . rows[r(m,n)]: x_BHSD gives [B,H,T,S].
at::Tensor key_dot_rows(const at::Tensor& x_BHSD, const DistanceTable& table, AttentionContext::State& state) {
  if (state.first_of_steps()) {  // distances rise along the queries of a key
    const int64_t keys = state.keys(), queries = state.queries();
    const Run run = run_of_rows(table, *state.first_of_steps() - (keys - 1), queries + keys - 1);
    const at::Tensor products = at::matmul(x_BHSD, run.rows.transpose(1, 2));
    return shifted(widened(products, run.before, run.after), queries).transpose(2, 3);
  }
  const at::Tensor index_BST = state.rows_by_distance(table.lo, table.hi).transpose(1, 2);
  return gathered(at::matmul(x_BHSD, table.rows.transpose(1, 2)), index_BST).transpose(2, 3);
}

// sum_n x(m,n) rows[r(m,n)]: x_BHTS gives [B,H,T,D].
at::Tensor sum_of_rows(const at::Tensor& x_BHTS, const DistanceTable& table, AttentionContext::State& state) {
  if (state.first_of_steps()) {
    const Run run = run_for_queries(table, state);
    return at::matmul(narrowed(shifted_back(x_BHTS), run.before, run.after), run.rows);
  }
  const at::ScalarType type = sum_type(x_BHTS.scalar_type());
  const at::Tensor none_BHTR =
      at::zeros({x_BHTS.size(0), x_BHTS.size(1), x_BHTS.size(2), table.rows.size(1)}, x_BHTS.options().dtype(type));
  const at::Tensor index_BHTS = for_heads(state.rows_by_distance(table.lo, table.hi), x_BHTS);
  const at::Tensor sums_BHTR = none_BHTR.scatter_add(-1, index_BHTS, x_BHTS.to(type));
  return at::matmul(sums_BHTR.to(x_BHTS.scalar_type()), table.rows);
}

// rows[r(m,n)] for rows [H or 1, rows], numbers: [1 or B, H or 1, T, S].
at::Tensor numbers_of_rows(const DistanceTable& table, AttentionContext::State& state) {
  const DistanceTable wide = {table.rows.to(sum_type(table.rows.scalar_type())), table.lo, table.hi};
  if (state.first_of_steps()) {  // windows of the run, the last query's first
    const Run run = run_for_queries(wide, state);
    return widened(run.rows, run.before, run.after).unfold(-1, state.keys(), 1).flip(1).unsqueeze(0);
  }
  return at::embedding(wide.rows.t(), state.rows_by_distance(table.lo, table.hi)).permute({0, 3, 1, 2});
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kChunkElements = int64_t{1} << 22;  // of [B, H, queries, S, D]

// index: rows of pairs, int64 [1 or B, t, S]. Result: [B,H,t,S].
at::Tensor products_of(const at::Tensor& q_BHtD, const at::Tensor& k_BHSD, const at::Tensor& rows_HRD,
                       const at::Tensor& index_BtS) {
  const NoAutocast no_autocast;  // as in a backward
  const at::Tensor rows_RX = rows_HRD.to(sum_type(rows_HRD.scalar_type())).transpose(0, 1).flatten(1);
  const at::Tensor gates_BtSHD = at::embedding(rows_RX, index_BtS).unflatten(-1, {rows_HRD.size(0), rows_HRD.size(2)});
  const at::Tensor gates_BHtSD = gates_BtSHD.permute({0, 3, 1, 2, 4}).to(q_BHtD.scalar_type());
  return at::matmul(gates_BHtSD * k_BHSD.unsqueeze(2), q_BHtD.unsqueeze(-1)).squeeze(-1);
}

struct GatedProducts : torch::autograd::Function<GatedProducts> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q_BHtD, const at::Tensor& k_BHSD,
                            const at::Tensor& rows_HRD, const at::Tensor& index_BtS) {
    ctx->save_for_backward({q_BHtD, k_BHSD, rows_HRD, index_BtS});
    return products_of(q_BHtD, k_BHSD, rows_HRD, index_BtS);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad_outs) {
    variable_list saved = ctx->get_saved_variables();
    const bool higher_order = at::GradMode::is_enabled();
    const at::AutoGradMode record(true);
    // Gradients are taken with respect to these views, even if one input was computed from another.
    for (size_t i = 0; i < 3; ++i) saved[i] = saved[i].view_as(saved[i]);
    const at::Tensor products = products_of(saved[0], saved[1], saved[2], saved[3]);
    variable_list wanted, grads(4);
    for (size_t i = 0; i < 3; ++i) {
      if (saved[i].requires_grad()) wanted.push_back(saved[i]);
    }
    const variable_list found = torch::autograd::grad({products}, wanted, grad_outs, /*retain_graph=*/higher_order,
                                                      /*create_graph=*/higher_order);
    for (size_t i = 0, next = 0; i < 3; ++i) {
      if (saved[i].requires_grad()) grads[i] = found[next++];
    }
    return grads;
  }
};

// sum_d q_m[d] G[r(m,n)][d] k_n[d], the content score under a gate whose rows are vectors (rf/ops/terms.h): q
// [B,H,T,D], k [B,H,S,D] and gate rows [H or 1, rows, D] give [B,H,T,S] in the dtype of q, also under autocast. Queries
// are processed in chunks, and the backward recomputes their gates, so memory is bounded by [queries, S, D] per chunk.
at::Tensor gated_products(const at::Tensor& q_BHTD, const at::Tensor& k_BHSD, const DistanceTable& gate,
                          AttentionContext::State& state) {
  const int64_t queries = q_BHTD.size(2), one_query = k_BHSD.numel();
  if (queries == 0 || one_query == 0) return at::matmul(q_BHTD, k_BHSD.transpose(2, 3));
  const int64_t chunk = std::max<int64_t>(1, kChunkElements / one_query);
  const at::Tensor& index_BTS = state.rows_by_distance(gate.lo, gate.hi);
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < queries; begin += chunk) {
    const int64_t count = std::min(chunk, queries - begin);
    const at::Tensor q_BHtD = q_BHTD.narrow(2, begin, count), index_BtS = index_BTS.narrow(1, begin, count);
    parts.push_back(is_inside_transform() ? products_of(q_BHtD, k_BHSD, gate.rows, index_BtS)
                                          : GatedProducts::apply(q_BHtD, k_BHSD, gate.rows, index_BtS));
  }
  return at::cat(parts, 2);
}

// Dropout. Inside a transform of torch.func, all that it maps over drops the same.
at::Tensor dropped(const at::Tensor& weights_BHTS, const ops::AttentionCall& call) {
  const auto drop = [&](const at::Tensor& x) {
    return ops::dropout(x, call.dropout, call.seed.expect_int(), call.stream.expect_int());
  };
  if (!is_inside_transform()) return drop(weights_BHTS);
  const auto factors = [&] {
    const OutsideTransforms constant;
    return drop(at::ones(weights_BHTS.sizes(), weights_BHTS.options()));
  };
  return weights_BHTS * factors();
}

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
    const at::Tensor a = scaled(rows_at(terms.position_query, state.query_ids), scale, dtype),
                     c = rows_at(terms.position_key, state.key_ids).to(dtype);
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
  if (col_H.defined()) reset(col_H, state.key_ids.eq(0).unsqueeze(1).unsqueeze(2));
  if (row_H.defined()) reset(row_H, state.query_ids.eq(0).unsqueeze(1).unsqueeze(3));
  return scores;
}

}  // namespace

at::Tensor explicit_attention(const ops::AttentionCall& call, AttentionContext::State& state) {
  const at::Tensor &q_BTHD = call.q, &k_BSHD = call.k, &v_BSHD = call.v;
  const Terms& terms = call.terms;
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
  const at::Tensor weights_BHTS = dropped(at::softmax(scores_BHTS, -1), call);
  at::Tensor out_BHTD = at::matmul(weights_BHTS, heads_first(rotated(v_BSHD, terms.value, terms.layout), heads));
  if (terms.value_table.defined()) {
    out_BHTD = out_BHTD + sum_of_rows(weights_BHTS, scaled(terms.value_table, 1, weights_BHTS.scalar_type()), state);
  }
  return out_BHTD.transpose(1, 2).to(dtype);
}

}  // namespace rf::nn
