// Gradients through terms by distance (K, Q, V, b): adds the parts from a tile of weights and a tile of score
// gradients.
#if defined(RF_CORE_ATTENTION_TABLE_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_TABLE_GRADIENTS_INL_H_
#undef RF_CORE_ATTENTION_TABLE_GRADIENTS_INL_H_
#else
#define RF_CORE_ATTENTION_TABLE_GRADIENTS_INL_H_
#endif

#include <algorithm>

#include "attention/gather-inl.h"
#include "attention/problem.h"
#include "attention/shift-inl.h"
#include "attention/sides-inl.h"
#include "attention/terms.h"
#include "attention/tile-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// Work space that tiles use in turn.
struct GradientSpace {
  GradientSpace(const AttentionProblem& problem, Arena& arena)
      : copies(arena.take<float>(room(problem))),
        sums(arena.take<float>(room(problem))),
        wide_(arena.take<float>(kGap + kKeyTile * kWideRow)) {}

  // A tile with zeros between its rows.
  const float* widen(const float* tile, const Span& queries, const Span& keys) {
    std::fill_n(wide_, kGap, 0.0f);
    float* to = wide_ + kGap;
    for (int64_t j = 0; j < keys.count; ++j, to += kWideRow) {
      std::copy_n(tile + j * kQueryTile, queries.count, to);
      std::fill(to + queries.count, to + kWideRow, 0.0f);
    }
    return wide_ + kGap;
  }

  float* copies;  // rows by distance beyond the ends of a table
  float* sums;    // and sums of their gradients

 private:
  static int64_t room(const AttentionProblem& problem) {
    return problem.has_tables() ? kPanelRows * std::max(problem.width, problem.value_width) : 0;
  }
  float* wide_;
};

// The place to add the gradients of a tile's rows: the table's rows, or sums that are later added to the rows they
// stand for.
template <class Add>
void add_to_table(const TableRows& table, int64_t least, int64_t count, float* gradient, float* sums, const Add& add) {
  if (gradient == nullptr) return;
  if (least >= table.lo && least + count - 1 <= table.hi) return add(gradient + table.index(least) * table.stride);
  std::fill_n(sums, count * table.stride, 0.0f);
  add(sums);
  for (int64_t x = 0; x < count; ++x) {
    add_scaled(1, sums + x * table.stride, table.stride, gradient + table.index(least + x) * table.stride);
  }
}

// gradient[j] += sum_x tile(x,j) rows[x]; wide: the tile with zeros between its rows.
inline void add_rows_to_keys(const float* wide, int64_t queries, int64_t keys, const float* rows, int64_t width,
                             float* gradient) {
  Product p;
  p.a_row = kWideRow + 1;
  p.a_step = 1;
  p.b_step = p.start_row = p.c_row = width;
  p.vectors = width / kLanes;
  for (int64_t j = 0; j < keys; j += kBlockRows) {
    p.rows = std::min<int64_t>(kBlockRows, keys - j);
    p.depth = queries + p.rows - 1;
    p.a = wide + j * kWideRow - (p.rows - 1);
    p.b = rows + (keys - j - p.rows) * width;
    p.start = p.c = gradient + j * width;
    multiply<FloatElements>(p);
  }
}

// gradient[x] += sum_j tile(x,j) rows[j].
inline void add_keys_to_rows(const float* wide, int64_t queries, int64_t keys, const float* rows, int64_t width,
                             float* gradient) {
  Product p;
  p.a_row = 1;
  p.a_step = kWideRow + 1;
  p.b_step = p.start_row = p.c_row = width;
  p.vectors = width / kLanes;
  const int64_t distances = queries + keys - 1;
  for (int64_t x = 0; x < distances; x += kBlockRows) {
    p.rows = std::min<int64_t>(kBlockRows, distances - x);
    const int64_t first = std::max<int64_t>(0, keys - x - p.rows), last = std::min(keys - 1, distances - 1 - x);
    p.depth = last - first + 1;
    p.a = wide + first * (kWideRow + 1) + x - (keys - 1);
    p.b = rows + first * width;
    p.start = p.c = gradient + x * width;
    multiply<FloatElements>(p);
  }
}

// numbers[x] = sum_j tile(x,j), along the diagonals.
inline HWY_NOINLINE void sum_diagonals(const float* wide, int64_t queries, int64_t keys, float* numbers) {
  const FloatTag d;
  for (int64_t x = 0; x < queries + keys - 1; x += kLanes) {
    const int64_t first = std::max<int64_t>(0, keys - x - kLanes), last = std::min(keys - 1, keys + queries - 2 - x);
    auto sum = hn::Zero(d);
    for (int64_t j = first; j <= last; ++j)
      sum = hn::Add(sum, hn::LoadU(d, wide + j * (kWideRow + 1) + x - (keys - 1)));
    hn::StoreU(sum, d, numbers + x);
  }
}

// Numbers of a tile to the rows of one number that their distances read.
inline void add_diagonals(const TableRows& table, const Span& queries, const Span& keys, const float* tile,
                          GradientSpace& space, float* gradient) {
  const Distances distances(queries, keys);
  alignas(64) float numbers[kPanelRows + kRowFloats];
  sum_diagonals(space.widen(tile, queries, keys), queries.count, keys.count, numbers);
  for (int64_t i = 0; i < queries.count + keys.count - 1; ++i) {
    gradient[table.index(distances.least + i)] += numbers[i];
  }
}

// b, row and col. scores: dscore.
inline HWY_NOINLINE void add_position_gradients(const AttentionProblem& problem, int64_t h, const Span& queries,
                                                const Span& keys, const float* scores, GradientSpace& space,
                                                const HeadTermGradients& terms) {
  const rf_attention_args& x = problem.args;
  if (terms.bias == nullptr && terms.reset_row == nullptr && terms.reset_col == nullptr) return;
  const bool resets = (x.reset_row != nullptr && queries.has_zero) || (x.reset_col != nullptr && keys.has_zero);
  if (resets || !steps(queries, keys)) {
    return gather_position_gradients(problem, h, queries, keys, scores, terms);
  }
  if (terms.bias == nullptr) return;
  add_diagonals(TableRows(problem.bias, h), queries, keys, scores, space, terms.bias);
}

// kappa. scores: dscore; gradient: of the head, from key 0 on.
inline HWY_NOINLINE void add_key_score_gradients(const Span& queries, const Span& keys, const float* scores,
                                                 float* gradient) {
  for (int64_t j = 0; j < keys.count; ++j) {
    const float* row = scores + j * kQueryTile;
    gradient[keys.first + j] += sum_vectors(queries.count, [&](int64_t i) HWY_ATTR {
      return first_lanes(hn::LoadU(FloatTag(), row + i), queries.count - i);  // the other lanes may be NaN
    });
  }
}

// Adds to one of the two rows that distances beyond a table read: kBelow the first, kAbove the last.
HWY_INLINE const float* edge_row(const TableRows& table, Reach reach) {
  return reach == Reach::kBelow ? table.rows : table.row(table.hi);
}
HWY_INLINE float* edge_of(float* edges, Reach reach) { return edges + (reach == Reach::kBelow ? 0 : kQueryTile); }

// K and V of a tile. `tile`: s dscore for K, f p for V. rows: q + w, or y, [queries][stride]. Sums for the first and
// the last row stay in `edges` until the query tile is done. out: [queries][stride], d(q + w); nullptr for V.
struct QueryTable {
  const TableRows& table;
  const float* rows;
  float* out;
  float* edges;
  float* gradient;  // of the table
};

inline void add_query_table(const QueryTable& t, const Span& queries, const Span& keys, float* tile,
                            GradientSpace& space) {
  const Distances distances(queries, keys);
  const Reach reach = distances.reach(t.table);
  if (reach == Reach::kBelow || reach == Reach::kAbove) return add_columns(tile, keys.count, edge_of(t.edges, reach));
  const int64_t count = queries.count + keys.count - 1;
  std::fill_n(tile + keys.count * kQueryTile, kGuardFloats, 0.0f);
  if (t.out != nullptr) {
    const float* rows = rows_at(t.table, distances, 0, count, space.copies);
    add_rows_to_queries(tile, queries.count, keys.count, rows, t.table.stride, t.out);
  }
  add_to_table(t.table, distances.least, count, t.gradient, space.sums,
               [&](float* to) { add_queries_to_rows(tile, queries.count, keys.count, t.rows, t.table.stride, to); });
}

// Adds the sums kept in `edges`.
inline void add_query_table_edges(const QueryTable& t, int64_t queries) {
  for (const Reach reach : {Reach::kBelow, Reach::kAbove}) {
    const float *edge = edge_of(t.edges, reach), *row = edge_row(t.table, reach);
    float* gradient = t.gradient == nullptr ? nullptr : t.gradient + (row - t.table.rows);
    for (int64_t i = 0; i < queries; ++i) {
      if (t.out != nullptr) add_scaled(edge[i], row, t.table.stride, t.out + i * t.table.stride);
      if (gradient != nullptr) add_scaled(edge[i], t.rows + i * t.table.stride, t.table.stride, gradient);
    }
  }
}

// Q of a tile. scores: s dscore; raw_gradient: [S][width], of k.
inline void add_key_table(const AttentionProblem& problem, int64_t h, const Span& queries, const KeySide& keys,
                          const float* scores, float* raw_gradient, float* gradient, GradientSpace& space) {
  const TableRows Q(problem.query_table, h);
  const Distances distances(queries, keys.span);
  const Reach reach = distances.reach(Q);
  const float* wide = space.widen(scores, queries, keys.span);
  float* key_gradient = raw_gradient + keys.span.first * problem.width;
  if (reach == Reach::kBelow || reach == Reach::kAbove) {
    const float* row = edge_row(Q, reach);
    alignas(64) static constexpr float kOnes[kMaxQueryTile] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                               1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                               1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (int64_t j = 0; j < keys.span.count; ++j) {
      const float sum = dot(wide + j * kWideRow, kOnes, kQueryTile);
      add_scaled(sum, row, problem.width, key_gradient + j * problem.width);
      if (gradient != nullptr) {
        add_scaled(sum, keys.raw_rows + j * problem.width, problem.width, gradient + (row - Q.rows));
      }
    }
    return;
  }
  const int64_t count = queries.count + keys.span.count - 1;
  const float* rows = rows_at(Q, distances, 0, count, space.copies);
  add_rows_to_keys(wide, queries.count, keys.span.count, rows, problem.width, key_gradient);
  add_to_table(Q, distances.least, count, gradient, space.sums, [&](float* to) {
    add_keys_to_rows(wide, queries.count, keys.span.count, keys.raw_rows, problem.width, to);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
