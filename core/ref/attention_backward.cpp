// Attention over terms, backward (see the header): the derivative of each line of the forward, in the same order of
// terms. With y the gradient of out_m, and p_n the probabilities of query m:
//
//   dp_n      = y . (R^v_n v_n + V[r])
//   dscore_n  = p_n (dp_n - sum_j p_j dp_j)
//   d(R^v_n v_n + V[r]) = p_n y
//
// and from dscore_n by the product rule to everything a score is made of. Sums over batch, heads, queries and keys run
// in index order.
#include <algorithm>

#include "attention.h"
#include "attention_head.h"

namespace rf::ref {
namespace {

// gradient[index] += value, where the gradient is wanted.
void add(void* gradient, int64_t index, double value) {
  if (gradient != nullptr) static_cast<double*>(gradient)[index] += value;
}

// Gradients of what a Head holds.
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
    case PositionTerm::kRow:
      return add(grads.row, h, g);
    case PositionTerm::kColumn:
      return add(grads.col, h, g);
    case PositionTerm::kBias:
      break;
  }
  add(grads.bias, row_of(x.bias, h, head.distance(m, n)), g);
  if (x.a == nullptr) return;
  const int64_t a_row = (h * x.positions + head.query_positions[m]) * x.head_dim;
  const int64_t c_row = (h * x.positions + head.key_positions[n]) * x.head_dim;
  for (int64_t d = 0; d < x.head_dim; ++d) {
    add(grads.a, a_row + d, x.scale * g * element(x.c, c_row + d));
    add(grads.c, c_row + d, x.scale * g * element(x.a, a_row + d));
  }
}

// g: the gradient of score(m,n).
void score_backward(const Head& head, int64_t m, int64_t n, double g, HeadGradients& dhead,
                    const rf_attention_grads& grads) {
  const rf_attention_args& x = head.args;
  const int64_t distance = head.distance(m, n);
  const int64_t K = row_of(x.table_k, head.h, distance);
  const int64_t Q = row_of(x.table_q, head.h, distance);
  const int64_t G = row_of(x.gate, head.h, distance);
  const double dsum = x.scale * g;
  for (int64_t d = 0; d < x.head_dim; ++d) {
    const int64_t hd = head.h * x.head_dim + d;
    const int64_t Gd = G + column_of(x.gate, d);
    const double biased_q = head.rotated_q[m][d] + element(x.u, hd);
    const double gate = element(x.gate.rows, Gd, /*absent=*/1);
    const double rotated_k = head.rotated_k[n][d];
    dhead.rotated_q[m][d] += dsum * gate * rotated_k;
    add(grads.u, hd, dsum * gate * rotated_k);
    add(grads.gate, Gd, dsum * biased_q * rotated_k);
    dhead.rotated_k[n][d] += dsum * biased_q * gate;

    const double key_row = element(x.table_k.rows, K + d);
    dhead.q[m][d] += dsum * key_row;
    add(grads.w, hd, dsum * key_row);
    add(grads.table_k, K + d, dsum * (head.q[m][d] + element(x.w, hd)));

    dhead.k[n][d] += dsum * element(x.table_q.rows, Q + d);
    add(grads.table_q, Q + d, dsum * head.k[n][d]);
  }
  position_score_backward(head, m, n, g, grads);
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
    const int64_t V = row_of(x.table_v, head.h, head.distance(m, n));
    for (int64_t e = 0; e < x.value_dim; ++e) {
      dhead.rotated_v[n][e] += p * y[e];
      add(grads.table_v, V + e, p * y[e]);
    }
    score_backward(head, m, n, p * (dp[i] - mean), dhead, grads);
  }
}

// From the gradient dy of y = R x to those of x (added to dx), cos and sin.
void rotate_backward(const rf_attention_rotation& rotation, rf_rope_layout layout, int64_t b, const Matrix& x,
                     const Matrix& dy, Matrix& dx, void* dcos, void* dsin) {
  const int64_t pairs = rotation.cos == nullptr ? 0 : rotation.pairs;
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t i = 0; i < pairs; ++i) {
      const int64_t at = ((rotation.batch == 1 ? 0 : b) * x.rows() + t) * pairs + i;
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

void clear_rotation(const rf_attention_rotation& rotation, int64_t tokens, void* dcos, void* dsin) {
  if (rotation.cos == nullptr) return;
  clear(dcos, rotation.batch * tokens * rotation.pairs);
  clear(dsin, rotation.batch * tokens * rotation.pairs);
}

void clear_table(const rf_attention_table& table, void* gradient) {
  if (table.rows != nullptr) clear(gradient, table.heads * (table.hi - table.lo + 1) * table.width);
}

void clear_all(const rf_attention_args& x, const rf_attention_grads& grads) {
  clear(grads.q, x.batch * x.queries * x.heads * x.head_dim);
  clear(grads.k, x.batch * x.keys * x.key_heads * x.head_dim);
  clear(grads.v, x.batch * x.keys * x.key_heads * x.value_dim);
  clear_rotation(x.rotation_q, x.queries, grads.cos_q, grads.sin_q);
  clear_rotation(x.rotation_k, x.keys, grads.cos_k, grads.sin_k);
  clear_rotation(x.rotation_v, x.keys, grads.cos_v, grads.sin_v);
  clear(grads.u, x.heads * x.head_dim);
  clear(grads.w, x.heads * x.head_dim);
  clear_table(x.table_k, grads.table_k);
  clear_table(x.table_q, grads.table_q);
  clear_table(x.table_v, grads.table_v);
  clear_table(x.bias, grads.bias);
  clear_table(x.gate, grads.gate);
  clear(grads.a, x.heads * x.positions * x.head_dim);
  clear(grads.c, x.heads * x.positions * x.head_dim);
  clear(grads.row, x.heads);
  clear(grads.col, x.heads);
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
      rotate_backward(args.rotation_q, args.layout, b, head.q, dhead.rotated_q, dhead.q, grads.cos_q, grads.sin_q);
      rotate_backward(args.rotation_k, args.layout, b, head.k, dhead.rotated_k, dhead.k, grads.cos_k, grads.sin_k);
      rotate_backward(args.rotation_v, args.layout, b, head.v, dhead.rotated_v, dhead.v, grads.cos_v, grads.sin_v);
      add_head(grads.q, dhead.q, b, args.heads, h);
      add_head(grads.k, dhead.k, b, args.key_heads, head.key_head);
      add_head(grads.v, dhead.v, b, args.key_heads, head.key_head);
    }
  }
}

}  // namespace rf::ref
