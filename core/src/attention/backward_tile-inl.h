// The backward of one tile of queries and keys: two products, probabilities from kept sums, three products
// (backward.cpp has the equations), and the gradients of the terms of scores.
#if defined(RF_CORE_ATTENTION_BACKWARD_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_BACKWARD_TILE_INL_H_
#undef RF_CORE_ATTENTION_BACKWARD_TILE_INL_H_
#else
#define RF_CORE_ATTENTION_BACKWARD_TILE_INL_H_
#endif

#include <algorithm>

#include "attention/backward_sides-inl.h"
#include "attention/gate-inl.h"
#include "attention/problem.h"
#include "attention/product-inl.h"
#include "attention/sides-inl.h"
#include "attention/table_gradients-inl.h"
#include "attention/tables-inl.h"
#include "attention/terms.h"
#include "attention/tile-inl.h"
#include "attention/tile_scores-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

struct BackwardSpace : ProductSpace {
  BackwardSpace(const AttentionProblem& problem, Arena& arena, int64_t tiles)
      : keys(problem, arena),
        key_pairs(problem, arena),
        tile_pairs(arena.take<uint32_t>(kTileFloats / 2)),
        position(problem, arena),
        gate(problem, Gate::Use::kBackward, arena),
        mask(arena),
        dropout(problem, arena),
        key_panel(problem, arena),
        gradients(problem, arena),
        guarded_weights(arena.take<float>(kTileFloats + 2 * kGuardFloats)),
        guarded_scores(arena.take<float>(kTileFloats + 2 * kGuardFloats)),
        raw_rows(arena.take<float>(kKeyTile * std::max(problem.width, problem.value_width))),
        turned_scores(arena.take<float>(problem.args.pair_bias.numbers == nullptr ? 0 : kQueryTile * kKeyTile)),
        sums(problem, arena) {
    for (int64_t i = 0; i < tiles; ++i) queries[i] = BackwardQueries(problem, arena);
  }
  KeySide keys;
  KeyPairs key_pairs;
  uint32_t* tile_pairs;  // a tile as bfloat16, in the order of the current product
  PositionScores position;
  Gate gate;
  TileMask mask;
  TileDropout dropout;
  KeyPanel key_panel;
  GradientSpace gradients;
  float *guarded_weights, *guarded_scores;
  float* weights() { return guarded_weights + kGuardFloats; }  // p, then f p
  float* scores() { return guarded_scores + kGuardFloats; }    // dp, then dscore
  float* raw_rows;                                             // [queries][width] or [keys][..]: before their rotation
  float* turned_scores;                                        // [queries][keys]: dscore
  // Gradients of kappa [S] and P [T][S] of the current head, to be added to; nullptr: not wanted.
  float *key_score = nullptr, *pair_bias = nullptr;
  KeySums sums;
  BackwardQueries queries[kBackwardGroup];
};

// Raw scores to probabilities in `weights`, dp to dscore in `scores` (the equations of backward.cpp).
template <int kVectors>
HWY_NOINLINE void softmax_backward(const AttentionProblem& problem, BackwardSpace& space,
                                   const BackwardQueries& queries) {
  const FloatTag d;
  const int64_t keys = space.keys.span.count;
  float factor = static_cast<float>(problem.args.scale) * kLog2e;  // from the tile's numbers to a score
  if (!is_plain(problem.args, space.position, space.mask)) {
    FloatVec largest[kVectors];  // not used here
    finish_scores<kVectors>(space.weights(), keys, factor, space.position, space.mask, largest);
    factor = 1;
  }
  FloatVec log2_sum[kVectors], delta[kVectors];
  HWY_UNROLL(3)
  for (int l = 0; l < kVectors; ++l) {
    log2_sum[l] = hn::LoadU(d, queries.log2_sum + l * kLanes);
    delta[l] = hn::LoadU(d, queries.delta + l * kLanes);
  }
  for (int64_t j = 0; j < keys; ++j) {
    HWY_UNROLL(3)
    for (int l = 0; l < kVectors; ++l) {
      float* weight = space.weights() + j * kQueryTile + l * kLanes;
      float* score = space.scores() + j * kQueryTile + l * kLanes;
      const auto p = exp2(hn::Sub(hn::Mul(hn::LoadU(d, weight), hn::Set(d, factor)), log2_sum[l]));
      auto dp = hn::LoadU(d, score);
      auto dropped = p;
      if (space.dropout.any()) {
        const auto kept = hn::LoadU(d, space.dropout.row(j) + l * kLanes);
        dp = hn::Mul(dp, kept);
        dropped = hn::Mul(p, kept);
      }
      hn::StoreU(hn::Mul(p, hn::Sub(dp, delta[l])), d, score);
      hn::StoreU(dropped, d, weight);
    }
  }
}

// dp without dropout: y . (R^v v + V[r]).
inline void value_products(const AttentionProblem& problem, BackwardSpace& space, int64_t h, BackwardQueries& queries) {
  const Span &span = queries.side.span, &keys = space.keys.span;
  Start start;
  if (problem.value_table.rows != nullptr && steps(span, keys)) {
    start = start_of_panel(TableRows(problem.value_table, h), span, keys, queries.y_columns, queries.value_panel,
                           space.gradients.copies, space.scores());
  } else if (problem.value_table.rows != nullptr) {
    gather_value_products(problem, h, span, keys, queries.y, space.scores());
    start = {space.scores(), kQueryTile};
  }
  const bool pairs = uses_bf16_pairs(problem);
  Product p = space.product();
  p.a = pairs ? static_cast<const void*>(space.key_pairs.value_rows) : space.keys.values;
  p.a_row = p.depth = pairs ? problem.value_width / 2 : problem.value_width;
  p.a_step = 1;
  p.b = pairs ? static_cast<const void*>(queries.y_column_pairs) : queries.y_columns;
  p.b_step = p.c_row = kQueryTile;
  p.start = start.rows;
  p.start_row = start.stride;
  p.c = space.scores();
  p.rows = keys.count;
  p.vectors = (span.count + kLanes - 1) / kLanes;
  multiply_for(problem, p);
}

// Rows of a side: floats, and for products of bfloat16 pairs of neighbours.
struct SideRows {
  const float* rows;
  const uint32_t* pairs;
  int64_t width;
};

// Columns of [q, a] and [k, c], which products of bfloat16 take together.
struct Columns {
  int64_t first, count;
};

// gradient[key] += sum over queries of tile[key][query] rows[query], in some columns.
inline void add_to_keys(const AttentionProblem& problem, BackwardSpace& space, float* tile, const Span& queries,
                        const SideRows& rows, const Columns& columns, float* gradient) {
  const Span& keys = space.keys.span;
  const bool pairs = uses_bf16_pairs(problem);
  if (pairs) {
    // The last of an odd number of queries is paired with a row of zeros; its place in the tile may be NaN.
    for (int64_t j = 0; queries.count % 2 != 0 && j < keys.count; ++j) tile[j * kQueryTile + queries.count] = 0;
    narrow_rows(tile, keys.count, kQueryTile, space.tile_pairs);
  }
  Product p = space.product();
  p.a = pairs ? static_cast<const void*>(space.tile_pairs) : tile;
  p.a_row = pairs ? kQueryTile / 2 : kQueryTile;
  p.a_step = 1;
  p.b = pairs ? static_cast<const void*>(rows.pairs) : rows.rows + columns.first;
  p.start = p.c = gradient + keys.first * rows.width + columns.first;
  p.b_step = p.start_row = p.c_row = rows.width;
  p.rows = keys.count;
  p.vectors = columns.count / kLanes;
  p.depth = pairs ? (queries.count + 1) / 2 : queries.count;
  multiply_for(problem, p);
}

// gradient[d][query] += sum over keys of s dscore[key][query] [R^k k, c][key][d], for some d.
inline void add_to_queries(const AttentionProblem& problem, BackwardSpace& space, const Columns& columns,
                           BackwardQueries& queries) {
  const Span& keys = space.keys.span;
  const bool pairs = uses_bf16_pairs(problem);
  if (pairs) pair_neighbours(space.scores(), keys.count, kQueryTile, space.tile_pairs);
  Product p = space.product();
  p.a = pairs ? static_cast<const void*>(space.key_pairs.columns) : space.keys.rows + columns.first;
  p.a_row = pairs ? kKeyTile / 2 : 1;
  p.a_step = pairs ? 1 : problem.inner;
  p.b = pairs ? static_cast<const void*>(space.tile_pairs) : space.scores();
  p.start = p.c = queries.gradient + columns.first * kQueryTile;
  p.b_step = p.start_row = p.c_row = kQueryTile;
  p.rows = columns.count;
  p.vectors = (queries.side.span.count + kLanes - 1) / kLanes;
  p.depth = pairs ? (keys.count + 1) / 2 : keys.count;
  multiply_for(problem, p);
}

inline HWY_NOINLINE void scale_tile(float* tile, int64_t keys, float factor) {
  const FloatTag d;
  for (int64_t i = 0; i < keys * kQueryTile; i += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, tile + i), hn::Set(d, factor)), d, tile + i);
  }
}

// K, Q and V of a tile; f p and s dscore are already computed.
inline void add_table_gradients(const AttentionProblem& problem, BackwardSpace& space, int64_t h,
                                BackwardQueries& queries, const HeadTermGradients& terms) {
  const Span &keys = space.keys.span, &span = queries.side.span;
  if (!problem.has_tables()) return;
  if (!steps(span, keys)) {
    return gather_gradients(problem, h, {queries.side.raw(), queries.y, queries.raw_gradient},
                            {space.keys.raw(), space.sums.raw_keys}, space.weights(), space.scores(), terms);
  }
  const TableRows K(problem.key_table, h), V(problem.value_table, h);
  if (K.defined()) add_query_table(queries.key_table(K, terms), span, keys, space.scores(), space.gradients);
  if (V.defined()) add_query_table(queries.value_table(V, terms), span, keys, space.weights(), space.gradients);
  if (problem.query_table.rows != nullptr) {
    add_key_table(problem, h, span, space.keys, space.scores(), space.sums.raw_keys, terms.query_table,
                  space.gradients);
  }
}

// Tile `index` of the group; key_panel: of the whole group, or nullptr.
inline void backward_tile(const AttentionProblem& problem, BackwardSpace& space, int64_t b, int64_t h, int64_t index,
                          const KeyPanel* key_panel, const HeadTermGradients& terms) {
  const rf_attention_args& x = problem.args;
  BackwardQueries& queries = space.queries[index];
  const Span &keys = space.keys.span, &span = queries.side.span;
  if (space.mask.compute(x, b, h, span, keys) == TileMask::Kind::kNone) return;
  const Start start = start_of_scores(problem, h, queries.side, space.keys, queries.panel, key_panel,
                                      index * kQueryTile, space.gradients.copies, space.gate.start_of(space.weights()));
  space.gate.raw_scores_of(h, queries.side, space.keys, start, space.product(), space.weights());
  space.position.compute(problem, b, h, span, keys);
  value_products(problem, space, h, queries);
  if (space.dropout.any()) space.dropout.compute(b, h, span, keys);
  with_vectors(span, [&](auto vectors) { softmax_backward<decltype(vectors)::value>(problem, space, queries); });
  const SideRows y = {queries.y, queries.y_pairs, problem.value_width};
  const SideRows query_rows = {queries.side.rows, queries.row_pairs, problem.inner};
  add_to_keys(problem, space, space.weights(), span, y, {0, problem.value_width}, space.sums.values);
  add_position_gradients(problem, h, span, keys, space.scores(), space.gradients, terms);
  if (space.key_score != nullptr) add_key_score_gradients(span, keys, space.scores(), space.key_score);
  if (space.pair_bias != nullptr) {
    add_pair_gradients(space.scores(), span.count, keys.count, space.turned_scores,
                       space.pair_bias + span.first * problem.all_keys + keys.first, problem.all_keys);
  }
  scale_tile(space.scores(), keys.count, static_cast<float>(x.scale));
  add_table_gradients(problem, space, h, queries, terms);
  const auto add_products = [&](const Columns& columns) {
    add_to_keys(problem, space, space.scores(), span, query_rows, columns, space.sums.keys);
    add_to_queries(problem, space, columns, queries);
  };
  if (!problem.is_gated()) return add_products({0, problem.inner});
  if (problem.inner > problem.width) add_products({problem.width, problem.inner - problem.width});
  if (problem.is_gated_by_vectors()) {
    return space.gate.add_vector_gradients(h, queries.side, space.keys, space.scores(), queries.gradient,
                                           space.sums.keys + keys.first * problem.inner, terms.gate);
  }
  space.gate.multiply_gradients(h, span, keys, space.scores(), space.gradients, terms.gate);
  add_products({0, problem.width});
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
