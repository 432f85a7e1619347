// Attention over terms, backward (see the header): the derivative of each line of the forward, in the same order of
// terms. With y the gradient of out_m, and p_n the probabilities of query m:
//
//   dp_n      = y . (R^v_n v_n + V[r])
//   dscore_n  = p_n (dp_n - sum_j p_j dp_j)
//   d(R^v_n v_n + V[r]) = p_n y
//
// and from dscore_n by the product rule to all parts of a score. Sums over batch, heads, queries and keys run in index
// order.
#include <algorithm>

#include "attention/terms.h"
#include "attention_head.h"
#include "common/reference.h"

namespace rf::ref {
namespace {

// gradient[index] += value if the gradient is wanted.
void add(void* gradient, int64_t index, double value) {
  if (gradient != nullptr) static_cast<double*>(gradient)[index] += value;
}

// Gradients of the arrays in a Head.
struct HeadGradients {
  explicit HeadGradients(const Head& head)
      : q(head.args.queries, head.args.head_dim),
        k(head.args.keys, head.args.head_dim),
        v(head.args.keys, head.args.value_dim),
        rotated_q(q),
        rotated_k(k),
        rotated_v(v) {}
  Matrix q, k, v;
  Matrix rotated_q, rotated_k, rotated_v;
};

void position_score_backward(const Head& head, int64_t m, int64_t n, double g, const rf_attention_grads& grads) {
  const rf_attention_args& x = head.args;
  const int64_t h = head.h;
  switch (position_term(head, m, n)) {
    case PositionTerm::kRow: return add(grads.reset_row, h, g);
    case PositionTerm::kColumn: return add(grads.reset_col, h, g);
    case PositionTerm::kBias: break;
  }
  add(grads.bias, row_of(x.bias, h, head.distance(m, n)), g);
  if (x.position_query == nullptr) return;
  const int64_t a_row = (h * x.positions + head.query_positions[m]) * x.head_dim;
  const int64_t c_row = (h * x.positions + head.key_positions[n]) * x.head_dim;
  for (int64_t d = 0; d < x.head_dim; ++d) {
    add(grads.position_query, a_row + d, x.scale * g * element(x.position_key, c_row + d));
    add(grads.position_key, c_row + d, x.scale * g * element(x.position_query, a_row + d));
  }
}

// Adds to the number of head, query m and key n in a contiguous [batch, heads, rows, S] gradient.
void add_to_scores(void* gradient, const rf_attention_scores& scores, const Head& head, int64_t m, int64_t rows,
                   int64_t n, double g) {
  const int64_t b = scores.batch == 1 ? 0 : head.b, h = scores.heads == 1 ? 0 : head.h;
  add(gradient, ((b * scores.heads + h) * rows + (rows == 1 ? 0 : m)) * head.args.keys + n, g);
}

// g: the gradient of score(m,n).
void score_backward(const Head& head, int64_t m, int64_t n, double g, HeadGradients& dhead,
                    const rf_attention_grads& grads) {
  const rf_attention_args& x = head.args;
  const int64_t distance = head.distance(m, n);
  const int64_t K = row_of(x.key_table, head.h, distance);
  const int64_t Q = row_of(x.query_table, head.h, distance);
  const int64_t G = row_of(x.gate, head.h, distance);
  const double dsum = x.scale * g;
  for (int64_t d = 0; d < x.head_dim; ++d) {
    const int64_t hd = head.h * x.head_dim + d;
    const int64_t Gd = G + column_of(x.gate, d);
    const double biased_q = head.rotated_q[m][d] + element(x.content_bias, hd);
    const double gate = element(x.gate.rows, Gd, /*absent=*/1);
    const double rotated_k = head.rotated_k[n][d];
    dhead.rotated_q[m][d] += dsum * gate * rotated_k;
    add(grads.content_bias, hd, dsum * gate * rotated_k);
    add(grads.gate, Gd, dsum * biased_q * rotated_k);
    dhead.rotated_k[n][d] += dsum * biased_q * gate;

    const double key_row = element(x.key_table.rows, K + d);
    dhead.q[m][d] += dsum * key_row;
    add(grads.position_bias, hd, dsum * key_row);
    add(grads.key_table, K + d, dsum * (head.q[m][d] + element(x.position_bias, hd)));

    dhead.k[n][d] += dsum * element(x.query_table.rows, Q + d);
    add(grads.query_table, Q + d, dsum * head.k[n][d]);
  }
  position_score_backward(head, m, n, g, grads);
  add_to_scores(grads.key_score, x.key_score, head, m, /*rows=*/1, n, g);
  add_to_scores(grads.pair_bias, x.pair_bias, head, m, x.queries, n, g);
}

// y: the gradient of out_m, [Dv].
void query_backward(const Head& head, int64_t m, const double* y, HeadGradients& dhead,
                    const rf_attention_grads& grads) {
  const rf_attention_args& x = head.args;
  const AttentionRow row = attention_row(head, m);
  std::vector<double> dp(row.keys.size());
  double mean = 0;
  for (size_t i = 0; i < row.keys.size(); ++i) {
    for (int64_t e = 0; e < x.value_dim; ++e) dp[i] += y[e] * value(head, m, row.keys[i], e);
    mean += row.probabilities[i] * dp[i];
  }
  for (size_t i = 0; i < row.keys.size(); ++i) {
    const int64_t n = row.keys[i];
    const double p = row.probabilities[i];
    const int64_t V = row_of(x.value_table, head.h, head.distance(m, n));
    for (int64_t e = 0; e < x.value_dim; ++e) {
      dhead.rotated_v[n][e] += p * y[e];
      add(grads.value_table, V + e, p * y[e]);
    }
    score_backward(head, m, n, p * (dp[i] - mean), dhead, grads);
  }
}

// Takes the gradient dy of y = R x; adds the gradients of x (to dx), cos and sin.
void rotate_backward(const rf_attention_rotation& rotation, RotationHead of, rf_rope_layout layout, int64_t b,
                     const Matrix& x, const Matrix& dy, Matrix& dx, void* dcos, void* dsin) {
  const int64_t pairs = rotation.cos == nullptr ? 0 : rotation.pairs;
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t i = 0; i < pairs; ++i) {
      const int64_t at = of.row(rotation, b, x.rows(), t) + i;
      const double cos = element(rotation.cos, at), sin = element(rotation.sin, at);
      const auto [first, second] = pair_of(layout, pairs, i);
      const double dy_a = dy[t][first], dy_b = dy[t][second];
      dx[t][first] += cos * dy_a + sin * dy_b;
      dx[t][second] += cos * dy_b - sin * dy_a;
      add(dcos, at, dy_a * x[t][first] + dy_b * x[t][second]);
      add(dsin, at, dy_b * x[t][first] - dy_a * x[t][second]);
    }
    for (int64_t d = 2 * pairs; d < x.columns(); ++d) dx[t][d] += dy[t][d];
  }
}

// Adds one head's rows to a contiguous [B, tokens, heads, width] gradient.
void add_head(void* gradient, const Matrix& head_gradient, int64_t b, int64_t heads, int64_t h) {
  const int64_t tokens = head_gradient.rows(), width = head_gradient.columns();
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t d = 0; d < width; ++d) add(gradient, ((b * tokens + t) * heads + h) * width + d, head_gradient[t][d]);
  }
}

void clear(void* gradient, int64_t elements) {
  if (gradient != nullptr) std::fill_n(static_cast<double*>(gradient), elements, 0.0);
}

void clear_all(const rf_attention_args& x, const rf_attention_grads& grads) {
  clear(grads.q, x.batch * x.queries * x.heads * x.head_dim);
  clear(grads.k, x.batch * x.keys * x.key_heads * x.head_dim);
  clear(grads.v, x.batch * x.keys * x.key_heads * x.value_dim);
  for (const core::RotationTerm& term : core::kRotationTerms) {
    const rf_attention_rotation& rotation = x.*term.member;
    if (rotation.cos == nullptr) continue;
    clear(grads.*term.cos_gradient, term.size(x));
    clear(grads.*term.sin_gradient, term.size(x));
  }
  for (const core::TableTerm& term : core::kTableTerms) {
    const rf_attention_table& table = x.*term.member;
    if (table.rows != nullptr) clear(grads.*term.gradient, table.heads * term.rows(x) * table.width);
  }
  for (const core::NumbersTerm& term : core::kNumbersTerms) {
    clear(grads.*term.gradient, x.heads * term.rows(x) * term.width(x));
  }
  for (const core::ScoresTerm& term : core::kScoresTerms) clear(grads.*term.gradient, term.size(x));
}

}  // namespace

void attention_backward(const rf_attention_args& args, const rf_attention_grads& grads) {
  clear_all(args, grads);
  const auto* dout = static_cast<const double*>(grads.out);
  for (int64_t b = 0; b < args.batch; ++b) {
    for (int64_t h = 0; h < args.heads; ++h) {
      const Head head(args, b, h);
      HeadGradients dhead(head);
      for (int64_t m = 0; m < args.queries; ++m) {
        const double* y = dout + b * grads.out_stride_b + m * grads.out_stride_t + h * grads.out_stride_h;
        query_backward(head, m, y, dhead, grads);
      }
      rotate_backward(args.query, {args.query_rotation_heads, h}, args.layout, b, head.q, dhead.rotated_q, dhead.q,
                      grads.query_cos, grads.query_sin);
      rotate_backward(args.key, {args.key_rotation_heads, head.key_head}, args.layout, b, head.k, dhead.rotated_k,
                      dhead.k, grads.key_cos, grads.key_sin);
      rotate_backward(args.value, {args.value_rotation_heads, head.key_head}, args.layout, b, head.v, dhead.rotated_v,
                      dhead.v, grads.value_cos, grads.value_sin);
      add_head(grads.q, dhead.q, b, args.heads, h);
      add_head(grads.k, dhead.k, b, args.key_heads, head.key_head);
      add_head(grads.v, dhead.v, b, args.key_heads, head.key_head);
    }
  }
}

}  // namespace rf::ref
