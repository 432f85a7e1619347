// Terms by distance (K, Q, V) in the forward: tiles of steady positions by shifts, others pair by pair.
#if defined(RF_CORE_ATTENTION_TABLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_TABLES_INL_H_
#undef RF_CORE_ATTENTION_TABLES_INL_H_
#else
#define RF_CORE_ATTENTION_TABLES_INL_H_
#endif

#include <algorithm>

#include "attention/problem.h"
#include "attention/shift-inl.h"
#include "attention/sides-inl.h"
#include "attention/terms.h"
#include "attention/tile-inl.h"
#include "common/rows-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// Pair by pair, for tiles whose positions do not rise by 1; shift-inl.h handles the other tiles.

HWY_INLINE int64_t distance(const Span& queries, const Span& keys, int64_t i, int64_t j) {
  return queries.positions[i] - keys.positions[j];
}

// (q + w) . K[r] + k . Q[r] of every pair, one at a time: for positions that do not rise by 1.
inline HWY_NOINLINE void gather_scores(const AttentionProblem& problem, int64_t h, const RawSide& queries,
                                       const RawSide& keys, float* tile) {
  const TableRows K(problem.key_table, h), Q(problem.query_table, h);
  for (int64_t j = 0; j < keys.span.count; ++j) {
    for (int64_t i = 0; i < queries.span.count; ++i) {
      const int64_t r = distance(queries.span, keys.span, i, j);
      float sum = 0;
      if (K.defined()) sum += dot(queries.raw_rows + i * problem.width, K.row(r), problem.width);
      if (Q.defined()) sum += dot(keys.raw_rows + j * problem.width, Q.row(r), problem.width);
      tile[j * kQueryTile + i] = sum;
    }
    std::fill(tile + j * kQueryTile + queries.span.count, tile + (j + 1) * kQueryTile, 0.0f);
  }
}

// out += weight V[r].
inline HWY_NOINLINE void gather_values(const AttentionProblem& problem, int64_t h, const Span& queries,
                                       const Span& keys, const float* tile, float* out) {
  const TableRows V(problem.value_table, h);
  for (int64_t i = 0; i < queries.count; ++i) {
    for (int64_t j = 0; j < keys.count; ++j) {
      add_scaled(tile[j * kQueryTile + i], V.row(distance(queries, keys, i, j)), problem.value_width,
                 out + i * problem.value_width);
    }
  }
}

// y . V[r] of every pair.
inline HWY_NOINLINE void gather_value_products(const AttentionProblem& problem, int64_t h, const Span& queries,
                                               const Span& keys, const float* y, float* tile) {
  const TableRows V(problem.value_table, h);
  for (int64_t j = 0; j < keys.count; ++j) {
    for (int64_t i = 0; i < queries.count; ++i) {
      tile[j * kQueryTile + i] =
          dot(y + i * problem.value_width, V.row(distance(queries, keys, i, j)), problem.value_width);
    }
    std::fill(tile + j * kQueryTile + queries.count, tile + (j + 1) * kQueryTile, 0.0f);
  }
}

struct QueryGradients {
  RawSide side;
  const float* y;       // [queries][value_width]: gradient of the output
  float* raw_gradient;  // [queries][width]: of q + w
};
struct KeyGradients {
  RawSide side;
  float* raw_gradient;  // [S][width]: of k
};

// The gradients that a tile gives through K, Q and V. weights: f p; scores: s dscore.
inline HWY_NOINLINE void gather_gradients(const AttentionProblem& problem, int64_t h, const QueryGradients& queries,
                                          const KeyGradients& keys, const float* weights, const float* scores,
                                          const HeadTermGradients& terms) {
  const TableRows K(problem.key_table, h), Q(problem.query_table, h), V(problem.value_table, h);
  const Span &query_span = queries.side.span, &key_span = keys.side.span;
  const auto add_row = [](float factor, const float* row, int64_t width, float* gradient, int64_t index) {
    if (gradient != nullptr) add_scaled(factor, row, width, gradient + index * width);
  };
  for (int64_t j = 0; j < key_span.count; ++j) {
    for (int64_t i = 0; i < query_span.count; ++i) {
      const int64_t r = distance(query_span, key_span, i, j);
      const float g = scores[j * kQueryTile + i];
      if (K.defined()) {
        add_scaled(g, K.row(r), problem.width, queries.raw_gradient + i * problem.width);
        add_row(g, queries.side.raw_rows + i * problem.width, problem.width, terms.key_table, K.index(r));
      }
      if (Q.defined()) {
        add_scaled(g, Q.row(r), problem.width, keys.raw_gradient + (key_span.first + j) * problem.width);
        add_row(g, keys.side.raw_rows + j * problem.width, problem.width, terms.query_table, Q.index(r));
      }
      if (V.defined()) {
        const float weight = weights[j * kQueryTile + i];
        add_row(weight, queries.y + i * problem.value_width, problem.value_width, terms.value_table, V.index(r));
      }
    }
  }
}

// b, row and col. scores: dscore.
inline HWY_NOINLINE void gather_position_gradients(const AttentionProblem& problem, int64_t h, const Span& queries,
                                                   const Span& keys, const float* scores,
                                                   const HeadTermGradients& terms) {
  const rf_attention_args& x = problem.args;
  const TableRows bias(problem.bias, h);
  for (int64_t j = 0; j < keys.count; ++j) {
    for (int64_t i = 0; i < queries.count; ++i) {
      const float g = scores[j * kQueryTile + i];
      if (x.reset_row != nullptr && queries.positions[i] == 0) {
        if (terms.reset_row != nullptr) *terms.reset_row += g;
      } else if (x.reset_col != nullptr && keys.positions[j] == 0) {
        if (terms.reset_col != nullptr) *terms.reset_col += g;
      } else if (terms.bias != nullptr) {
        terms.bias[bias.index(distance(queries, keys, i, j))] += g;
      }
    }
  }
}

// k . Q[r] of a tile of keys with all distances that a group of query tiles needs: neighbours in memory are distances,
// so a key's row, read from the first distance of the tile, has the order of the tile.
class KeyPanel {
 public:
  KeyPanel(const AttentionProblem& problem, Arena& arena)
      : rows_(arena.take<float>(problem.query_table.rows == nullptr ? 0 : kKeyTile * kWidth)) {}

  // queries: of the whole group.
  void fill(const AttentionProblem& problem, int64_t h, const Span& queries, const KeySide& keys);
  // tile[j][i] of queries that begin `offset` after the group, added or set.
  void put(const KeySide& keys, int64_t offset, bool add, float* tile) const;

 private:
  static constexpr int64_t kWidth = kForwardGroup * kQueryTile + kKeyTile + kRowFloats;
  float* rows_;
};

inline HWY_NOINLINE void KeyPanel::fill(const AttentionProblem& problem, int64_t h, const Span& queries,
                                        const KeySide& keys) {
  const TableRows Q(problem.query_table, h);
  const int64_t tiles = (queries.count + kQueryTile - 1) / kQueryTile;
  const int64_t least = queries.positions[0] - keys.span.positions[keys.span.count - 1];
  const int64_t count = tiles * kQueryTile + keys.span.count - 1;
  // Distances of the table; if it is empty, its nearest row in place 0.
  const int64_t first = std::clamp<int64_t>(Q.lo - least, 0, count),
                end = std::clamp<int64_t>(Q.hi - least + 1, 0, count);
  const bool outside = first == end;
  const int64_t head = problem.query_table.heads == 1 ? 0 : h;
  Product p;
  p.a = keys.raw_rows;
  p.a_row = p.depth = problem.width;
  p.a_step = 1;
  p.b = problem.query_columns + head * problem.width * problem.query_column_stride + Q.index(least + first);
  p.b_step = problem.query_column_stride;
  p.c = rows_ + (outside ? 0 : first);
  p.c_row = kWidth;
  p.rows = keys.span.count;
  p.vectors = outside ? 1 : (end - first + kLanes - 1) / kLanes;
  multiply<FloatElements>(p);
  for (int64_t j = 0; j < keys.span.count; ++j) {
    float* row = rows_ + j * kWidth;
    if (outside) {
      std::fill(row, row + count, float{row[0]});
    } else {
      std::fill(row, row + first, float{row[first]});
      std::fill(row + end, row + count, float{row[end - 1]});
    }
  }
}

inline HWY_NOINLINE void KeyPanel::put(const KeySide& keys, int64_t offset, bool add, float* tile) const {
  const FloatTag d;
  for (int64_t j = 0; j < keys.span.count; ++j, tile += kQueryTile) {
    const float* row = rows_ + j * kWidth + offset + keys.span.count - 1 - j;
    for (int64_t l = 0; l < kQueryTile; l += kLanes) {
      const auto value = hn::LoadU(d, row + l);
      hn::StoreU(add ? hn::Add(value, hn::LoadU(d, tile + l)) : value, d, tile + l);
    }
  }
}

// The part of a query tile's scores that comes from K: its panel of (q + w) . K.
struct QueryPanel {
  float* columns = nullptr;  // [width][kQueryTile]: q + w
  Panel panel;

  QueryPanel() = default;
  QueryPanel(const AttentionProblem& problem, Arena& arena)
      : columns(arena.take<float>(problem.key_table.rows == nullptr ? 0 : problem.width * kQueryTile)),
        panel(problem.key_table.rows != nullptr, arena) {}

  void start(const AttentionProblem& problem, int64_t h, const QuerySide& queries) {
    if (problem.key_table.rows == nullptr) return;
    std::fill_n(columns, problem.width * kQueryTile, 0.0f);
    transpose(queries.raw_rows, problem.width, queries.span.count, problem.width, columns, kQueryTile);
    panel.start(TableRows(problem.key_table, h), columns);
  }
};

// A panel in the order of the tile, or the one row that all distances read.
inline Start start_of_panel(const TableRows& table, const Span& queries, const Span& keys, const float* columns,
                            Panel& panel, float* copies, float* tile) {
  const Distances distances(queries, keys);
  const Reach reach = distances.reach(table);
  if (reach == Reach::kBelow) return {panel.edges, 0};
  if (reach == Reach::kAbove) return {panel.edges + kQueryTile, 0};
  panel.fill(table, distances, keys.count, columns, copies);
  skew_panel(panel.rows, keys.count, tile);
  return {tile, kQueryTile};
}

// (q + w) . K[r] + k . Q[r], which raw scores begin with. `offset`: of the tile's first query in its group.
inline Start start_of_scores(const AttentionProblem& problem, int64_t h, const QuerySide& queries, const KeySide& keys,
                             QueryPanel& panel, const KeyPanel* key_panel, int64_t offset, float* copies, float* tile) {
  const bool has_k = problem.key_table.rows != nullptr, has_q = problem.query_table.rows != nullptr;
  if (!has_k && !has_q) return {};
  if (!steps(queries.span, keys.span) || (has_q && key_panel == nullptr)) {
    gather_scores(problem, h, queries.raw(), keys.raw(), tile);
    return {tile, kQueryTile};
  }
  Start start;
  if (has_k) {
    start = start_of_panel(TableRows(problem.key_table, h), queries.span, keys.span, panel.columns, panel.panel, copies,
                           tile);
  }
  if (!has_q) return start;
  if (has_k && start.stride == 0) {
    for (int64_t j = 0; j < keys.span.count; ++j) std::copy_n(start.rows, kQueryTile, tile + j * kQueryTile);
  }
  key_panel->put(keys, offset, has_k, tile);
  return {tile, kQueryTile};
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
