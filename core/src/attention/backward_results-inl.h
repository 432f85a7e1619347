// Turns the sums of the backward into gradients: undoes rotations by their transpose, adds raw parts, and writes or
// adds rows of queries, keys, values and of arrays shared by positions.
#if defined(RF_CORE_ATTENTION_BACKWARD_RESULTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_BACKWARD_RESULTS_INL_H_
#undef RF_CORE_ATTENTION_BACKWARD_RESULTS_INL_H_
#else
#define RF_CORE_ATTENTION_BACKWARD_RESULTS_INL_H_
#endif

#include <algorithm>

#include "attention/backward_sides-inl.h"
#include "attention/kernels.h"
#include "attention/problem.h"
#include "attention/table_gradients-inl.h"
#include "attention/tables-inl.h"
#include "hwy/highway.h"
#include "rf/attention.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// Gradients of cos and sin: with y = R x and dy the gradient of y, pair (i, j) of a vector has
//
//   dcos = dy_i x_i + dy_j x_j        dsin = dy_j x_i - dy_i x_j
//
// Each head of the side writes its rows; rows that heads or entries share are summed afterwards (fused.cpp).

// The gradients of the first token of a range, and the stride between tokens.
struct RotationGradient {
  float *cos = nullptr, *sin = nullptr;  // nullptr: not wanted
  int64_t step = 0;

  RotationGradient(void* cos_gradient, void* sin_gradient, int64_t pairs, int64_t heads, int64_t row)
      : step(heads * pairs) {
    if (cos_gradient != nullptr) cos = static_cast<float*>(cos_gradient) + row * pairs;
    if (sin_gradient != nullptr) sin = static_cast<float*>(sin_gradient) + row * pairs;
  }
  bool wanted() const { return cos != nullptr || sin != nullptr; }
};

// rows: vectors before the rotation; gradients: of the rotated vectors; both with `stride` floats between vectors.
inline HWY_NOINLINE void write_rotation_gradients(rf_rope_layout layout, int64_t pairs, int64_t tokens,
                                                  const float* rows, int64_t row_stride, const float* gradients,
                                                  int64_t stride, const RotationGradient& to) {
  const bool neighbours = layout == RF_ROPE_PAIRS;
  for (int64_t t = 0; t < tokens; ++t, rows += row_stride, gradients += stride) {
    for (int64_t p = 0; p < pairs; ++p) {
      const int64_t i = neighbours ? 2 * p : p, j = neighbours ? i + 1 : i + pairs;
      if (to.cos != nullptr) to.cos[t * to.step + p] = gradients[i] * rows[i] + gradients[j] * rows[j];
      if (to.sin != nullptr) to.sin[t * to.step + p] = gradients[j] * rows[i] - gradients[i] * rows[j];
    }
  }
}

// Gradients of a and c go to the rows of their positions, except where a reset replaced them.
inline void add_position_rows(const rf_attention_args& x, const Span& span, const void* reset, const float* rows,
                              int64_t stride, float* gradient) {
  if (gradient == nullptr) return;
  for (int64_t i = 0; i < span.count; ++i) {
    if (reset != nullptr && span.positions[i] == 0) continue;
    add_scaled(1.0f, rows + i * stride, padded(x.head_dim), gradient + span.positions[i] * padded(x.head_dim));
  }
}

// sum[d] += rows[i][d]
inline void add_rows(const float* rows, int64_t count, int64_t stride, int64_t width, float* sum) {
  if (sum == nullptr) return;
  for (int64_t i = 0; i < count; ++i) add_scaled(1.0f, rows + i * stride, width, sum);
}

inline void write_queries(const AttentionProblem& problem, const rf_attention_grads& grads, int64_t b, int64_t h,
                          BackwardQueries& queries, float* raw_rows, const HeadTermGradients& terms) {
  const rf_attention_args& x = problem.args;
  const Span& span = queries.side.span;
  float* gradient = queries.side.rows;  // no longer read
  transpose(queries.gradient, kQueryTile, problem.inner, kQueryTile, gradient, problem.inner);
  add_rows(gradient, span.count, problem.inner, problem.width, terms.content_bias);
  add_position_rows(x, span, x.reset_row, gradient + problem.width, problem.inner, terms.position_query);
  const RotationGradient rotation(grads.query_cos, grads.query_sin, x.query.pairs, x.heads,
                                  (b * x.queries + span.first) * x.heads + h);
  if (rotation.wanted()) {
    load_rows(x.dtype, query_rows(x, b, h), span.first, span.count, x.head_dim, raw_rows, problem.width);
    write_rotation_gradients(x.layout, x.query.pairs, span.count, raw_rows, problem.width, gradient, problem.inner,
                             rotation);
  }
  rotate_rows(x.query, x.layout, RotationDirection::kTransposed, b, x.queries, span.first, span.count, gradient,
              problem.inner, {problem.rotation_heads[0], h});
  const TableRows K(problem.key_table, h), V(problem.value_table, h);
  if (V.defined()) add_query_table_edges(queries.value_table(V, terms), span.count);
  if (K.defined()) {
    add_query_table_edges(queries.key_table(K, terms), span.count);
    add_rows(queries.raw_gradient, span.count, problem.width, problem.width, terms.position_bias);
    for (int64_t i = 0; i < span.count; ++i) {
      add_scaled(1.0f, queries.raw_gradient + i * problem.width, problem.width, gradient + i * problem.inner);
    }
  }
  if (grads.q == nullptr) return;
  for (int64_t i = 0; i < span.count; ++i) {
    store_row(x.dtype, gradient + i * problem.inner, x.head_dim, 1, grads.q,
              ((b * x.queries + span.first + i) * x.heads + h) * x.head_dim);
  }
}

// c differs between the query heads that share a key head: its gradients are taken head by head.
inline void take_key_position_gradients(const AttentionProblem& problem, const KeySums& sums, int64_t b,
                                        const KeyPart& part, const HeadTermGradients& terms) {
  const rf_attention_args& x = problem.args;
  if (x.position_key == nullptr) return;
  const Span all(part.first, part.end - part.first, positions_of(x.key_positions, x.key_position_stride_b, b));
  float* gradient = sums.keys + part.first * problem.inner + problem.width;
  add_position_rows(x, all, x.reset_col, gradient, problem.inner, terms.position_key);
  for (int64_t j = 0; j < all.count; ++j) std::fill_n(gradient + j * problem.inner, problem.width, 0.0f);
}

// cos and sin of keys and values. raw_rows: work space for the rows of a tile before their rotation.
inline void write_key_rotations(const AttentionProblem& problem, const rf_attention_grads& grads, const KeySums& sums,
                                float* raw_rows, int64_t b, int64_t key_head, const KeyPart& part) {
  const rf_attention_args& x = problem.args;
  const int64_t h = key_head * problem.group;
  for (int64_t first = part.first; first < part.end; first += kKeyTile) {
    const int64_t count = std::min(kKeyTile, part.end - first);
    const Span keys(first, count, positions_of(x.key_positions, x.key_position_stride_b, b));
    const int64_t row = (b * x.keys + first) * x.key_heads + key_head;
    const RotationGradient of_keys(grads.key_cos, grads.key_sin, x.key.pairs, x.key_heads, row);
    if (of_keys.wanted()) {
      load_rows(x.dtype, key_rows(x, b, h / problem.group), first, count, x.head_dim, raw_rows, problem.width);
      clear_padding(x, b, keys, problem.width, problem.width, raw_rows);
      write_rotation_gradients(x.layout, x.key.pairs, count, raw_rows, problem.width, sums.keys + first * problem.inner,
                               problem.inner, of_keys);
    }
    const RotationGradient of_values(grads.value_cos, grads.value_sin, x.value.pairs, x.key_heads, row);
    if (of_values.wanted()) {
      const int64_t width = problem.value_width;
      load_rows(x.dtype, value_rows(x, b, h / problem.group), first, count, x.value_dim, raw_rows, width);
      clear_padding(x, b, keys, width, width, raw_rows);
      write_rotation_gradients(x.layout, x.value.pairs, count, raw_rows, width, sums.values + first * width, width,
                               of_values);
    }
  }
}

inline void write_keys(const AttentionProblem& problem, const rf_attention_grads& grads, const KeySums& sums,
                       float* raw_rows, int64_t b, int64_t key_head, const KeyPart& part) {
  const rf_attention_args& x = problem.args;
  const int64_t first = part.first, count = part.end - part.first;
  write_key_rotations(problem, grads, sums, raw_rows, b, key_head, part);
  rotate_rows(x.key, x.layout, RotationDirection::kTransposed, b, x.keys, first, count,
              sums.keys + first * problem.inner, problem.inner, {problem.rotation_heads[1], key_head});
  rotate_rows(x.value, x.layout, RotationDirection::kTransposed, b, x.keys, first, count,
              sums.values + first * problem.value_width, problem.value_width, {problem.rotation_heads[2], key_head});
  for (int64_t j = first; j < part.end; ++j) {
    float* gradient = sums.keys + j * problem.inner;
    if (x.query_table.rows != nullptr) {
      add_scaled(1.0f, sums.raw_keys + j * problem.width, problem.width, gradient);
    }
    const int64_t row = (b * x.keys + j) * x.key_heads + key_head;
    if (grads.k != nullptr) store_row(x.dtype, gradient, x.head_dim, 1, grads.k, row * x.head_dim);
    if (grads.v != nullptr) {
      store_row(x.dtype, sums.values + j * problem.value_width, x.value_dim, 1, grads.v, row * x.value_dim);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
