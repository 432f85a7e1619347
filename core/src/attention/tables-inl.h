// Terms by distance (K, Q, V) in the forward: tiles of steady positions by shifts, others pair by pair.
#if defined(RF_CORE_ATTENTION_TABLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_TABLES_INL_H_
#undef RF_CORE_ATTENTION_TABLES_INL_H_
#else
#define RF_CORE_ATTENTION_TABLES_INL_H_
#endif

#include <algorithm>

#include "attention/gather-inl.h"
#include "attention/problem.h"
#include "attention/shift-inl.h"
#include "attention/sides-inl.h"
#include "attention/tile-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

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
