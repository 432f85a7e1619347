// The two sides of a tile of scores in work space: queries and keys as rows of floats, rotated, with the additions of
// the terms, and in the orders that the products read.
#if defined(RF_CORE_ATTENTION_SIDES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_SIDES_INL_H_
#undef RF_CORE_ATTENTION_SIDES_INL_H_
#else
#define RF_CORE_ATTENTION_SIDES_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "attention/problem.h"
#include "attention/tile-inl.h"
#include "common/arena.h"
#include "common/rows-inl.h"
#include "common/rows_ahead.h"
#include "hwy/highway.h"
#include "rope/rotate_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// If the CPU is faster at products of pairs, products of bfloat16 data are rounded as in the explicit form: rotated
// queries and keys, and weights, to bfloat16. Position-only terms stay floats, so their scores are not rounded.
HWY_INLINE bool uses_bf16_pairs(const AttentionProblem& problem) {
#if RF_HAVE_BF16_INSTRUCTION
  return problem.args.dtype == RF_BF16 && problem.args.position_query == nullptr && has_fast_bf16_pairs();
#else
  (void)problem;
  return false;
#endif
}

HWY_INLINE const int64_t* positions_of(const int64_t* positions, int64_t stride_b, int64_t b) {
  return positions + b * stride_b;
}

// Rows of a (or c) at the positions of a span, next to rows of q (or k); zeros where a reset replaces them.
inline HWY_NOINLINE void load_position_rows(const rf_attention_args& x, const void* table, const void* reset, int64_t h,
                                            const Span& span, float* to, int64_t stride) {
  for (int64_t i = 0; i < span.count; ++i, to += stride) {
    const bool replaced = reset != nullptr && span.positions[i] == 0;
    const float* row = static_cast<const float*>(table) + (h * x.positions + span.positions[i]) * x.head_dim;
    if (!replaced) std::copy_n(row, x.head_dim, to);
    std::fill(to + (replaced ? 0 : x.head_dim), to + padded(x.head_dim), 0.0f);
  }
}

struct QuerySide {
  Span span;
  float* rows = nullptr;          // [queries][inner]: R^q q + u, then a
  float* columns = nullptr;       // [inner][kQueryTile]; as bfloat16 pairs [inner / 2][kQueryTile]
  uint32_t* row_pairs = nullptr;  // for products of bfloat16: [queries][inner / 2]
  float* raw_rows = nullptr;      // [queries][width]: q + w, where there is K

  QuerySide() = default;
  QuerySide(const AttentionProblem& problem, Arena& arena)
      : rows(arena.take<float>(kQueryTile * problem.inner)),
        columns(arena.take<float>(kQueryTile * problem.inner)),
        row_pairs(arena.take<uint32_t>(uses_bf16_pairs(problem) ? kQueryTile * problem.inner / 2 : 0)),
        raw_rows(arena.take<float>(problem.args.key_table.rows == nullptr ? 0 : kQueryTile * problem.width)) {}

  void load(const AttentionProblem& problem, int64_t b, int64_t h, int64_t first, int64_t count);
  RawSide raw() const { return {span, raw_rows}; }

 private:
  void load_rows_of(const AttentionProblem& problem, int64_t b, int64_t h);
};

inline void QuerySide::load_rows_of(const AttentionProblem& problem, int64_t b, int64_t h) {
  const rf_attention_args& x = problem.args;
  load_rows(x.dtype, query_rows(x, b, h), span.first, span.count, x.head_dim, rows, problem.inner);
  if (x.key_table.rows != nullptr) {
    for (int64_t i = 0; i < span.count; ++i) {
      float* raw = raw_rows + i * problem.width;
      std::copy_n(rows + i * problem.inner, problem.width, raw);
      if (x.position_bias == nullptr) continue;
      const float* w = static_cast<const float*>(x.position_bias) + h * x.head_dim;
      for (int64_t d = 0; d < x.head_dim; ++d) raw[d] += w[d];
    }
  }
  rotate_rows(x.query, x.layout, RotationDirection::kForward, b, x.queries, span.first, span.count, rows, problem.inner,
              {problem.rotation_heads[0], h});
  if (x.content_bias == nullptr) return;
  const float* u = static_cast<const float*>(x.content_bias) + h * x.head_dim;
  for (int64_t i = 0; i < span.count; ++i) {
    for (int64_t d = 0; d < x.head_dim; ++d) rows[i * problem.inner + d] += u[d];
  }
}

inline void QuerySide::load(const AttentionProblem& problem, int64_t b, int64_t h, int64_t first, int64_t count) {
  const rf_attention_args& x = problem.args;
  span = Span(first, count, positions_of(x.query_positions, x.query_position_stride_b, b));
  load_rows_of(problem, b, h);
  if (x.position_query != nullptr)
    load_position_rows(x, x.position_query, x.reset_row, h, span, rows + problem.width, problem.inner);
  if (count < kQueryTile) std::fill_n(columns, kQueryTile * problem.inner, 0.0f);
  if (uses_bf16_pairs(problem)) {
    narrow_rows(rows, count, problem.inner, row_pairs);
    const auto* pairs = reinterpret_cast<const float*>(row_pairs);
    return transpose(pairs, problem.inner / 2, count, problem.inner / 2, columns, kQueryTile);
  }
  transpose(rows, problem.inner, count, problem.inner, columns, kQueryTile);
}

struct KeySide {
  Span span;
  float* rows = nullptr;              // [keys][inner]: R^k k, then c
  uint32_t* row_pairs = nullptr;      // for products of bfloat16: [keys][inner / 2]
  float* raw_rows = nullptr;          // [keys][width]: k, where there is Q
  float* values = nullptr;            // [keys][value_width]: R^v v
  uint32_t* value_pairs = nullptr;    // for products of bfloat16: [keys / 2][value_width], pairs of keys
  uint32_t* value_columns = nullptr;  // the same, [value_width][kMaxKeyTile / 2]

  KeySide(const AttentionProblem& problem, Arena& arena)
      : rows(arena.take<float>(kMaxKeyTile * problem.inner)),
        row_pairs(arena.take<uint32_t>(uses_bf16_pairs(problem) ? kMaxKeyTile * problem.inner / 2 : 0)),
        raw_rows(arena.take<float>(problem.args.query_table.rows == nullptr ? 0 : kMaxKeyTile * problem.width)),
        values(arena.take<float>(kMaxKeyTile * problem.value_width)),
        value_pairs(arena.take<uint32_t>(uses_bf16_pairs(problem) ? kMaxKeyTile / 2 * problem.value_width : 0)),
        value_columns(arena.take<uint32_t>(uses_bf16_pairs(problem) ? kMaxKeyTile / 2 * problem.value_width : 0)) {}

  void load(const AttentionProblem& problem, int64_t b, int64_t h, int64_t first, int64_t count);
  RawSide raw() const { return {span, raw_rows}; }
  // For products of bfloat16: values as columns of pairs.
  void transpose_values(const AttentionProblem& problem);

 private:
  void load_keys(const AttentionProblem& problem, int64_t b, int64_t h);
  void load_values(const AttentionProblem& problem, int64_t b, int64_t h);
};

// The rows of k, or of v, of a key head.
inline HeadRows cached_keys(const rf_attention_args& x, int64_t b, int64_t key_head) {
  const int64_t offset = b * x.k_stride_b + key_head * x.k_stride_h;
  return {static_cast<const char*>(x.k) + offset * cache_element_bytes(x), x.k_stride_t};
}
inline HeadRows cached_values(const rf_attention_args& x, int64_t b, int64_t key_head) {
  const int64_t offset = b * x.v_stride_b + key_head * x.v_stride_h;
  return {static_cast<const char*>(x.v) + offset * cache_element_bytes(x), x.v_stride_t};
}

// load_rows() for the rows of cached_keys() and cached_values().
inline HWY_NOINLINE void load_cached_rows(const rf_attention_args& x, HeadRows from, const Span& span, int64_t columns,
                                          float* to, int64_t to_stride) {
  if (x.cache_type != RF_CACHE_INT8) {
    return load_rows(x.cache_type == RF_CACHE_BF16 ? RF_BF16 : x.dtype, from, span.first, span.count, columns, to,
                     to_stride);
  }
  const auto* row = static_cast<const int8_t*>(from.data) + span.first * from.stride;
  for (int64_t j = 0; j < span.count; ++j, row += from.stride, to += to_stride) {
    float scale;
    std::memcpy(&scale, row + columns, sizeof scale);
    int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const FloatTag d;
    const hn::RebindToSigned<FloatTag> di;
    const hn::Rebind<int8_t, FloatTag> d8;
    for (; i + kLanes <= columns; i += kLanes) {
      const auto numbers = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, row + i)));
      hn::StoreU(hn::Mul(numbers, hn::Set(d, scale)), d, to + i);
    }
#endif
    for (; i < columns; ++i) to[i] = static_cast<float>(row[i]) * scale;
    std::fill(to + i, to + to_stride, 0.0f);
  }
}

// Keys from `first` on, a whole tile or the rest.
inline void add_keys_ahead(const AttentionProblem& problem, int64_t b, int64_t h, int64_t first, int64_t tile,
                           RowsAhead& ahead) {
  const rf_attention_args& x = problem.args;
  const int64_t element = cache_element_bytes(x), count = std::min(tile, x.keys - first);
  add_rows_ahead<Access::kRead>(cached_values(x, b, h / problem.group), first, count, x.value_dim, element, ahead);
  add_rows_ahead<Access::kRead>(cached_keys(x, b, h / problem.group), first, count, x.head_dim, element, ahead);
}

// Replaces padding by zeros, because it may contain NaN or infinity, and 0 times those is not 0.
inline void clear_padding(const rf_attention_args& x, int64_t b, const Span& keys, int64_t width, int64_t stride,
                          float* rows) {
  if (!is_padding_mask(x)) return;
  for (int64_t j = 0; j < keys.count; ++j) {
    if (is_padding(x, b, keys.first + j)) std::fill_n(rows + j * stride, width, 0.0f);
  }
}

inline void KeySide::load_keys(const AttentionProblem& problem, int64_t b, int64_t h) {
  const rf_attention_args& x = problem.args;
  load_cached_rows(x, cached_keys(x, b, h / problem.group), span, x.head_dim, rows, problem.inner);
  clear_padding(x, b, span, problem.width, problem.inner, rows);
  if (x.query_table.rows != nullptr) {
    for (int64_t j = 0; j < span.count; ++j) {
      std::copy_n(rows + j * problem.inner, problem.width, raw_rows + j * problem.width);
    }
  }
  rotate_rows(x.key, x.layout, RotationDirection::kForward, b, x.keys, span.first, span.count, rows, problem.inner,
              {problem.rotation_heads[1], h / problem.group});
  if (x.position_key != nullptr)
    load_position_rows(x, x.position_key, x.reset_col, h, span, rows + problem.width, problem.inner);
}

inline void KeySide::load_values(const AttentionProblem& problem, int64_t b, int64_t h) {
  const rf_attention_args& x = problem.args;
  load_cached_rows(x, cached_values(x, b, h / problem.group), span, x.value_dim, values, problem.value_width);
  clear_padding(x, b, span, problem.value_width, problem.value_width, values);
  rotate_rows(x.value, x.layout, RotationDirection::kForward, b, x.keys, span.first, span.count, values,
              problem.value_width, {problem.rotation_heads[2], h / problem.group});
}

inline void KeySide::transpose_values(const AttentionProblem& problem) {
  if (!uses_bf16_pairs(problem)) return;
  pair_neighbours(values, span.count, problem.value_width, value_pairs);
  transpose(reinterpret_cast<const float*>(value_pairs), problem.value_width, (span.count + 1) / 2, problem.value_width,
            reinterpret_cast<float*>(value_columns), kMaxKeyTile / 2);
}

inline void KeySide::load(const AttentionProblem& problem, int64_t b, int64_t h, int64_t first, int64_t count) {
  const rf_attention_args& x = problem.args;
  span = Span(first, count, positions_of(x.key_positions, x.key_position_stride_b, b));
  load_keys(problem, b, h);
  load_values(problem, b, h);
  if (uses_bf16_pairs(problem)) narrow_rows(rows, span.count, problem.inner, row_pairs);
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
