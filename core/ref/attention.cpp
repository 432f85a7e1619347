// Attention over terms, forward (see the header): scores, softmax and the sum of values, term by term as in the
// equation of rf/attention.h.
#include "common/reference.h"

#include <algorithm>
#include <cmath>

#include "attention_head.h"

namespace rf::ref {
namespace {

// Tokens of one head of a [B, tokens, heads, width] view.
Matrix load(const void* data, int64_t offset, int64_t stride_t, int64_t tokens, int64_t width) {
  Matrix result(tokens, width);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t d = 0; d < width; ++d) result[t][d] = element(data, offset + t * stride_t + d);
  }
  return result;
}

Matrix rotate(const Matrix& x, const rf_attention_rotation& rotation, RotationHead of, rf_rope_layout layout,
              int64_t b) {
  Matrix y = x;
  if (rotation.cos == nullptr) return y;
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t i = 0; i < rotation.pairs; ++i) {
      const int64_t at = of.row(rotation, b, x.rows(), t) + i;
      const double cos = element(rotation.cos, at), sin = element(rotation.sin, at);
      const auto [first, second] = pair_of(layout, rotation.pairs, i);
      y[t][first] = cos * x[t][first] - sin * x[t][second];
      y[t][second] = sin * x[t][first] + cos * x[t][second];
    }
  }
  return y;
}

// Tokens of one side.
struct Run {
  int64_t first, count;
};

// The sequence of query m: the whole call, or a packed sequence.
struct Sequence {
  Run queries, keys;
  int64_t prefix;  // keys at its start that every query may attend to
};
Sequence sequence_of(const rf_attention_args& x, int64_t b, int64_t m) {
  const auto prefix = [&](int64_t entry) { return x.prefix == nullptr ? 0 : x.prefix[entry]; };
  if (x.cu_seqlens_q == nullptr) return {{0, x.queries}, {0, x.keys}, prefix(b)};
  const auto run = [](const int64_t* ends) { return Run{ends[0], ends[1] - ends[0]}; };
  int64_t i = 0;
  while (x.cu_seqlens_q[i + 1] <= m) ++i;
  return {run(x.cu_seqlens_q + i), run(x.cu_seqlens_k + i), prefix(i)};
}

bool may_attend(const rf_attention_args& x, const Sequence& own, int64_t b, int64_t h, int64_t m, int64_t n) {
  const int64_t query = m - own.queries.first, key = n - own.keys.first;
  const int64_t ahead = key - (query + own.keys.count - own.queries.count);
  if ((x.window & RF_WINDOW_LEFT) != 0 && ahead < -x.window_left) return false;
  if ((x.window & RF_WINDOW_RIGHT) != 0 && ahead > x.window_right && key >= own.prefix) return false;
  return x.mask == nullptr ||
         x.mask[b * x.mask_stride_b + h * x.mask_stride_h + m * x.mask_stride_t + n * x.mask_stride_s] != 0;
}

double position_score(const Head& head, int64_t m, int64_t n) {
  const rf_attention_args& x = head.args;
  const int64_t h = head.h;
  switch (position_term(head, m, n)) {
    case PositionTerm::kRow: return element(x.reset_row, h);
    case PositionTerm::kColumn: return element(x.reset_col, h);
    case PositionTerm::kBias: break;
  }
  double product = 0;
  if (x.position_query != nullptr) {
    const int64_t a_row = (h * x.positions + head.query_positions[m]) * x.head_dim;
    const int64_t c_row = (h * x.positions + head.key_positions[n]) * x.head_dim;
    for (int64_t d = 0; d < x.head_dim; ++d)
      product += element(x.position_query, a_row + d) * element(x.position_key, c_row + d);
  }
  return element(x.bias.rows, row_of(x.bias, h, head.distance(m, n))) + x.scale * product;
}

double score(const Head& head, int64_t m, int64_t n) {
  const rf_attention_args& x = head.args;
  const int64_t distance = head.distance(m, n);
  const int64_t K = row_of(x.key_table, head.h, distance);
  const int64_t Q = row_of(x.query_table, head.h, distance);
  const int64_t G = row_of(x.gate, head.h, distance);
  double sum = 0;
  for (int64_t d = 0; d < x.head_dim; ++d) {
    const double u = element(x.content_bias, head.h * x.head_dim + d);
    const double w = element(x.position_bias, head.h * x.head_dim + d);
    const double gate = element(x.gate.rows, G + column_of(x.gate, d), /*absent=*/1);
    sum += (head.rotated_q[m][d] + u) * gate * head.rotated_k[n][d];
    sum += (head.q[m][d] + w) * element(x.key_table.rows, K + d);
    sum += head.k[n][d] * element(x.query_table.rows, Q + d);
  }
  const double all = x.scale * sum + position_score(head, m, n) + added_score(x.key_score, head, m, n) +
                     added_score(x.pair_bias, head, m, n);
  return x.score_cap > 0 ? x.score_cap * std::tanh(all / x.score_cap) : all;
}

}  // namespace

Head::Head(const rf_attention_args& x, int64_t batch_entry, int64_t query_head)
    : args(x),
      b(batch_entry),
      h(query_head),
      key_head(query_head / (x.heads / x.key_heads)),
      q(load(x.q, b * x.q_stride_b + h * x.q_stride_h, x.q_stride_t, x.queries, x.head_dim)),
      k(load(x.k, b * x.k_stride_b + key_head * x.k_stride_h, x.k_stride_t, x.keys, x.head_dim)),
      v(load(x.v, b * x.v_stride_b + key_head * x.v_stride_h, x.v_stride_t, x.keys, x.value_dim)),
      rotated_q(rotate(q, x.query, {x.query_rotation_heads, h}, x.layout, b)),
      rotated_k(rotate(k, x.key, {x.key_rotation_heads, key_head}, x.layout, b)),
      rotated_v(rotate(v, x.value, {x.value_rotation_heads, key_head}, x.layout, b)),
      query_positions(x.query_positions + b * x.query_position_stride_b),
      key_positions(x.key_positions + b * x.key_position_stride_b) {}

Pair pair_of(rf_rope_layout layout, int64_t pairs, int64_t i) {
  return layout == RF_ROPE_PAIRS ? Pair{2 * i, 2 * i + 1} : Pair{i, i + pairs};
}

int64_t row_of(const rf_attention_table& table, int64_t h, int64_t distance) {
  if (table.rows == nullptr) return 0;
  const int64_t r = std::clamp(distance, table.lo, table.hi) - table.lo;
  const int64_t head = table.heads == 1 ? 0 : h;
  return (head * (table.hi - table.lo + 1) + r) * table.width;
}

double added_score(const rf_attention_scores& scores, const Head& head, int64_t m, int64_t n) {
  const int64_t b = scores.batch == 1 ? 0 : head.b, h = scores.heads == 1 ? 0 : head.h;
  return element(scores.numbers, b * scores.stride_b + h * scores.stride_h + m * scores.stride_t + n);
}

PositionTerm position_term(const Head& head, int64_t m, int64_t n) {
  if (head.args.reset_row != nullptr && head.query_positions[m] == 0) return PositionTerm::kRow;
  if (head.args.reset_col != nullptr && head.key_positions[n] == 0) return PositionTerm::kColumn;
  return PositionTerm::kBias;
}

AttentionRow attention_row(const Head& head, int64_t m) {
  AttentionRow row;
  const Sequence own = sequence_of(head.args, head.b, m);
  for (int64_t n = own.keys.first; n < own.keys.first + own.keys.count; ++n) {
    if (!may_attend(head.args, own, head.b, head.h, m, n)) continue;
    row.keys.push_back(n);
    row.probabilities.push_back(score(head, m, n));
  }
  if (row.keys.empty()) return row;
  const double largest = *std::max_element(row.probabilities.begin(), row.probabilities.end());
  double sum = 0;
  for (double& p : row.probabilities) {
    p = std::exp(p - largest);
    sum += p;
  }
  for (double& p : row.probabilities) p /= sum;
  return row;
}

double value(const Head& head, int64_t m, int64_t n, int64_t e) {
  const rf_attention_table& V = head.args.value_table;
  return head.rotated_v[n][e] + element(V.rows, row_of(V, head.h, head.distance(m, n)) + e);
}

void attention(const rf_attention_args& args) {
  auto* out = static_cast<double*>(args.out);
  for (int64_t b = 0; b < args.batch; ++b) {
    for (int64_t h = 0; h < args.heads; ++h) {
      const Head head(args, b, h);
      for (int64_t m = 0; m < args.queries; ++m) {
        const AttentionRow row = attention_row(head, m);
        double* out_m = out + b * args.out_stride_b + m * args.out_stride_t + h * args.out_stride_h;
        for (int64_t e = 0; e < args.value_dim; ++e) {
          double sum = 0;
          for (size_t i = 0; i < row.keys.size(); ++i) sum += row.probabilities[i] * value(head, m, row.keys[i], e);
          out_m[e] = sum;
        }
      }
    }
  }
}

}  // namespace rf::ref
