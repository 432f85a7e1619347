// Sides of the backward, in addition to the sides of the forward (sides-inl.h): the gradients of outputs, the sums that
// become gradients of queries, and the pairs that its products of bfloat16 read.
#if defined(RF_CORE_ATTENTION_BACKWARD_SIDES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_BACKWARD_SIDES_INL_H_
#undef RF_CORE_ATTENTION_BACKWARD_SIDES_INL_H_
#else
#define RF_CORE_ATTENTION_BACKWARD_SIDES_INL_H_
#endif

#include <algorithm>

#include "attention/problem.h"
#include "attention/sides-inl.h"
#include "attention/table_gradients-inl.h"
#include "attention/tables-inl.h"
#include "attention/terms.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// A query tile, the gradient of its output, and the gradients that follow from it.
struct BackwardQueries {
  QuerySide side;
  float* y = nullptr;             // [queries][value_width]
  float* y_columns = nullptr;     // [value_width][kQueryTile]
  float* delta = nullptr;         // one number per lane
  float* log2_sum = nullptr;      // one number per lane
  float* gradient = nullptr;      // [inner][kQueryTile]: of the rotated query and of a; before, see make_pairs
  float* raw_gradient = nullptr;  // [queries][width]: of q + w in (q + w) . K
  QueryPanel panel;
  Panel value_panel;           // y . V
  float* key_edges = nullptr;  // [2]: of pairs that read the first and the last row of K, and of V
  float* value_edges = nullptr;
  // For products of bfloat16, pairs of queries: [queries / 2][value_width] and [queries / 2][inner].
  uint32_t* y_pairs = nullptr;
  uint32_t* row_pairs = nullptr;
  uint32_t* y_column_pairs = nullptr;  // [value_width / 2][kQueryTile]: pairs of columns

  BackwardQueries() = default;
  BackwardQueries(const AttentionProblem& problem, Arena& arena)
      : side(problem, arena),
        y(arena.take<float>(kQueryTile * problem.value_width)),
        y_columns(arena.take<float>(kQueryTile * problem.value_width)),
        delta(arena.take<float>(kQueryTile)),
        log2_sum(arena.take<float>(kQueryTile)),
        gradient(arena.take<float>(kQueryTile * std::max(problem.inner, problem.value_width / 2))),
        raw_gradient(arena.take<float>(problem.key_table.rows == nullptr ? 0 : kQueryTile * problem.width)),
        panel(problem, arena),
        value_panel(problem.value_table.rows != nullptr, arena),
        key_edges(arena.take<float>(2 * kQueryTile)),
        value_edges(arena.take<float>(2 * kQueryTile)),
        y_pairs(arena.take<uint32_t>(uses_bf16_pairs(problem) ? kQueryTile / 2 * problem.value_width : 0)),
        row_pairs(arena.take<uint32_t>(uses_bf16_pairs(problem) ? kQueryTile / 2 * problem.inner : 0)),
        y_column_pairs(arena.take<uint32_t>(uses_bf16_pairs(problem) ? problem.value_width / 2 * kQueryTile : 0)) {}

  // The parts of K and V of head h, and their gradients.
  QueryTable key_table(const TableRows& table, const HeadTermGradients& terms) const {
    return {table, side.raw_rows, raw_gradient, key_edges, terms.key_table};
  }
  QueryTable value_table(const TableRows& table, const HeadTermGradients& terms) const {
    return {table, y, nullptr, value_edges, terms.value_table};
  }
  void load(const AttentionProblem& problem, const rf_attention_grads& grads, int64_t b, int64_t h, int64_t first,
            int64_t count);

  // The sums of a tile over the keys so far, sums_size floats; without the sums for gradients of terms.
  static int64_t sums_size(const AttentionProblem& problem) {
    const int64_t raw = problem.key_table.rows == nullptr ? 0 : problem.width;
    return kQueryTile * (problem.inner + raw + 2);
  }
  void take_sums(const AttentionProblem& problem, const float* from);
  void give_sums(const AttentionProblem& problem, float* to) const;

 private:
  // Calls action with each array of sums, its size and its place.
  template <class Action>
  void with_sums(const AttentionProblem& problem, const Action& action) const {
    const int64_t numbers = kQueryTile * problem.inner, raw = sums_size(problem) - numbers - 2 * kQueryTile;
    action(gradient, numbers, 0);
    action(raw_gradient, raw, numbers);
    action(key_edges, 2 * kQueryTile, numbers + raw);
  }
  void make_pairs(const AttentionProblem& problem);
};

// The gradients of all keys of a key head before their rotation is undone, summed over queries.
struct KeySums {
  float* keys;      // [S][inner]: of the rotated key and of c
  float* raw_keys;  // [S][width]: of k in k . Q, where there is Q
  float* values;    // [S][value_width]

  KeySums(const AttentionProblem& problem, Arena& arena)
      : keys(arena.take<float>(problem.args.keys * problem.inner)),
        raw_keys(arena.take<float>(problem.query_table.rows == nullptr ? 0 : problem.args.keys * problem.width)),
        values(arena.take<float>(problem.args.keys * problem.value_width)) {}
};

// A tile of keys for products of bfloat16: the pairs that they read.
struct KeyPairs {
  uint32_t* rows = nullptr;        // [keys / 2][inner]: pairs of keys
  uint32_t* columns = nullptr;     // the same, [inner][kKeyTile / 2]
  uint32_t* value_rows = nullptr;  // [keys][value_width / 2]: pairs of columns

  KeyPairs(const AttentionProblem& problem, Arena& arena)
      : rows(arena.take<uint32_t>(uses_bf16_pairs(problem) ? kKeyTile / 2 * problem.inner : 0)),
        columns(arena.take<uint32_t>(uses_bf16_pairs(problem) ? kKeyTile / 2 * problem.inner : 0)),
        value_rows(arena.take<uint32_t>(uses_bf16_pairs(problem) ? kKeyTile * problem.value_width / 2 : 0)) {}
  void load(const AttentionProblem& problem, const KeySide& keys);
};

inline void BackwardQueries::make_pairs(const AttentionProblem& problem) {
  const int64_t count = side.span.count, width = problem.value_width;
  pair_neighbours(y, count, width, y_pairs);
  pair_neighbours(side.rows, count, problem.inner, row_pairs);
  // The memory of `gradient` first holds y as bfloat16, on its way to columns of pairs.
  auto* narrow = reinterpret_cast<uint32_t*>(gradient);
  narrow_rows(y, count, width, narrow);
  std::fill_n(y_column_pairs, width / 2 * kQueryTile, 0u);
  transpose(gradient, width / 2, count, width / 2, reinterpret_cast<float*>(y_column_pairs), kQueryTile);
}

inline void BackwardQueries::take_sums(const AttentionProblem& problem, const float* from) {
  with_sums(problem, [&](float* own, int64_t count, int64_t place) { std::copy_n(from + place, count, own); });
}

inline void BackwardQueries::give_sums(const AttentionProblem& problem, float* to) const {
  with_sums(problem, [&](const float* own, int64_t count, int64_t place) { std::copy_n(own, count, to + place); });
}

inline void KeyPairs::load(const AttentionProblem& problem, const KeySide& keys) {
  if (!uses_bf16_pairs(problem)) return;
  pair_neighbours(keys.rows, keys.span.count, problem.inner, rows);
  transpose(reinterpret_cast<const float*>(rows), problem.inner, (keys.span.count + 1) / 2, problem.inner,
            reinterpret_cast<float*>(columns), kKeyTile / 2);
  narrow_rows(keys.values, keys.span.count, problem.value_width, value_rows);
}

inline void BackwardQueries::load(const AttentionProblem& problem, const rf_attention_grads& grads, int64_t b,
                                  int64_t h, int64_t first, int64_t count) {
  const rf_attention_args& x = problem.args;
  side.load(problem, b, h, first, count);
  // The outputs are read into the memory of y_columns, which is filled below.
  float* out = y_columns;
  load_rows(x.dtype, out_rows(x.dtype, grads, b, h), first, count, x.value_dim, y, problem.value_width);
  load_rows(x.dtype, out_rows(x.dtype, x, b, h), first, count, x.value_dim, out, problem.value_width);
  for (int64_t i = 0; i < kQueryTile; ++i) {
    delta[i] = log2_sum[i] = 0;
    if (i >= count) continue;
    float* row = y + i * problem.value_width;
    const float log_sum = x.log_sum[(b * x.heads + h) * problem.all_queries + first + i];
    if (log_sum == kMinusInfinity) {  // without keys: gradient 0 for any input
      std::fill_n(row, problem.value_width, 0.0f);
      continue;
    }
    delta[i] = dot(row, out + i * problem.value_width, problem.value_width);
    log2_sum[i] = log_sum * kLog2e;
  }
  if (count < kQueryTile) std::fill_n(y_columns, kQueryTile * problem.value_width, 0.0f);
  transpose(y, problem.value_width, count, problem.value_width, y_columns, kQueryTile);
  if (uses_bf16_pairs(problem)) make_pairs(problem);
  std::fill_n(gradient, kQueryTile * problem.inner, 0.0f);
  panel.start(problem, h, side);
  std::fill_n(key_edges, 2 * kQueryTile, 0.0f);
  std::fill_n(value_edges, 2 * kQueryTile, 0.0f);
  if (problem.key_table.rows != nullptr) std::fill_n(raw_gradient, kQueryTile * problem.width, 0.0f);
  if (problem.value_table.rows != nullptr) value_panel.start(TableRows(problem.value_table, h), y_columns);
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
