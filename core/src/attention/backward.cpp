// Fused attention, backward: probabilities are computed again from the kept log of their sums, tile by tile, and five
// products give the gradients. With y the gradient of a query's output and f dropout's factor:
//
//   p        = exp2(score - log2 of the sum)
//   dp       = f y . (R^v v + V[r])             delta = y . out = sum p dp
//   dscore   = p (dp - delta)
//   d(R^v v) += f p y        d(R^k k) += s dscore (R^q q + u)        d(R^q q) += s dscore (R^k k)
//
// Tiles of keys are the inner loop for a group of query tiles: the sums of a query run over the keys in order and those
// of a key over the queries in order, wherever the groups end. Gradients of terms are added where their tile is.
#include "attention/backward.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "common/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/backward.cpp"
#include "hwy/foreach_target.h"
// The list of targets, then each of them.
#include "attention/backward_sides-inl.h"
#include "attention/gate-inl.h"
#include "attention/rotation_gradients-inl.h"
#include "attention/sides-inl.h"
#include "attention/table_gradients-inl.h"
#include "attention/tables-inl.h"
#include "attention/tile-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

inline constexpr int64_t kBlocksOfTile = 48;  // approximately, of the five products

struct BackwardSpace {
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
        key_gradient(arena.take<float>(problem.args.keys * problem.inner)),
        raw_key_gradient(
            arena.take<float>(problem.query_table.rows == nullptr ? 0 : problem.args.keys * problem.width)),
        value_gradient(arena.take<float>(problem.args.keys * problem.value_width)) {
    for (int64_t i = 0; i < tiles; ++i) queries[i] = BackwardQueries(problem, arena);
  }
  // A product of this kernel whose operands are still to be set.
  Product product() {
    Product p;
    p.ahead = &ahead;
    p.amx = &amx;
    return p;
  }
  RowsAhead ahead;
  AmxTiles amx;
  KeySide keys;
  KeyPairs key_pairs;
  uint32_t* tile_pairs;  // a tile as bfloat16, in the order of the product at hand
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
  // Where the gradients of kappa [S] and P [T][S] of the head at hand are added; nullptr: not wanted.
  float *key_score = nullptr, *pair_bias = nullptr;
  // For all keys of a key head: [S][inner], [S][width], [S][value_width].
  float *key_gradient, *raw_key_gradient, *value_gradient;
  BackwardQueries queries[kBackwardGroup];
};

// Raw scores to probabilities in `weights`, dp to dscore in `scores` (the equations above).
template <int kVectors>
HWY_NOINLINE void softmax_backward(const AttentionProblem& problem, BackwardSpace& space,
                                   const BackwardQueries& queries) {
  const FloatTag d;
  const int64_t keys = space.keys.span.count;
  float factor = static_cast<float>(problem.args.scale) * kLog2e;  // from what the tile holds to a score
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
void value_products(const AttentionProblem& problem, BackwardSpace& space, int64_t h, BackwardQueries& queries) {
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

// Columns of [q, a] and [k, c], which products of bfloat16 take all at once.
struct Columns {
  int64_t first, count;
};

// gradient[key] += sum over queries of tile[key][query] rows[query], in some columns.
void add_to_keys(const AttentionProblem& problem, BackwardSpace& space, float* tile, const Span& queries,
                 const SideRows& rows, const Columns& columns, float* gradient) {
  const Span& keys = space.keys.span;
  const bool pairs = uses_bf16_pairs(problem);
  if (pairs) {
    // The last of an odd number of queries is paired with a row of zeros; what the tile has for it may be NaN.
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
void add_to_queries(const AttentionProblem& problem, BackwardSpace& space, const Columns& columns,
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

HWY_NOINLINE void scale_tile(float* tile, int64_t keys, float factor) {
  const FloatTag d;
  for (int64_t i = 0; i < keys * kQueryTile; i += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, tile + i), hn::Set(d, factor)), d, tile + i);
  }
}

// K, Q and V of a tile; f p and s dscore are there.
void add_table_gradients(const AttentionProblem& problem, BackwardSpace& space, int64_t h, BackwardQueries& queries,
                         const HeadTermGradients& terms) {
  const Span &keys = space.keys.span, &span = queries.side.span;
  if (!problem.has_tables()) return;
  if (!steps(span, keys)) {
    return gather_gradients(problem, h, {queries.side.raw(), queries.y, queries.raw_gradient},
                            {space.keys.raw(), space.raw_key_gradient}, space.weights(), space.scores(), terms);
  }
  const TableRows K(problem.key_table, h), V(problem.value_table, h);
  if (K.defined()) add_query_table(queries.key_table(K, terms), span, keys, space.scores(), space.gradients);
  if (V.defined()) add_query_table(queries.value_table(V, terms), span, keys, space.weights(), space.gradients);
  if (problem.query_table.rows != nullptr) {
    add_key_table(problem, h, span, space.keys, space.scores(), space.raw_key_gradient, terms.query_table,
                  space.gradients);
  }
}

// Tile `index` of the group; key_panel: of the whole group, or nullptr.
void backward_tile(const AttentionProblem& problem, BackwardSpace& space, int64_t b, int64_t h, int64_t index,
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
  add_to_keys(problem, space, space.weights(), span, y, {0, problem.value_width}, space.value_gradient);
  add_position_gradients(problem, h, span, keys, space.scores(), space.gradients, terms);
  if (space.key_score != nullptr) add_key_score_gradients(span, keys, space.scores(), space.key_score);
  if (space.pair_bias != nullptr) {
    add_pair_gradients(space.scores(), span.count, keys.count, space.turned_scores,
                       space.pair_bias + span.first * problem.all_keys + keys.first, problem.all_keys);
  }
  scale_tile(space.scores(), keys.count, static_cast<float>(x.scale));
  add_table_gradients(problem, space, h, queries, terms);
  const auto add_products = [&](const Columns& columns) {
    add_to_keys(problem, space, space.scores(), span, query_rows, columns, space.key_gradient);
    add_to_queries(problem, space, columns, queries);
  };
  if (!problem.is_gated()) return add_products({0, problem.inner});
  if (problem.inner > problem.width) add_products({problem.width, problem.inner - problem.width});
  if (problem.is_gated_by_vectors()) {
    return space.gate.add_vector_gradients(h, queries.side, space.keys, space.scores(), queries.gradient,
                                           space.key_gradient + keys.first * problem.inner, terms.gate);
  }
  space.gate.multiply_gradients(h, span, keys, space.scores(), space.gradients, terms.gate);
  add_products({0, problem.width});
}

// Gradients of a and c go to the rows of their positions, except where a reset replaced them.
void add_position_rows(const rf_attention_args& x, const Span& span, const void* reset, const float* rows,
                       int64_t stride, float* gradient) {
  if (gradient == nullptr) return;
  for (int64_t i = 0; i < span.count; ++i) {
    if (reset != nullptr && span.positions[i] == 0) continue;
    add_scaled(1.0f, rows + i * stride, padded(x.head_dim), gradient + span.positions[i] * padded(x.head_dim));
  }
}

// sum[d] += rows[i][d]
void add_rows(const float* rows, int64_t count, int64_t stride, int64_t width, float* sum) {
  if (sum == nullptr) return;
  for (int64_t i = 0; i < count; ++i) add_scaled(1.0f, rows + i * stride, width, sum);
}

void write_queries(const AttentionProblem& problem, const rf_attention_grads& grads, int64_t b, int64_t h,
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
    load_rows(x.dtype, query_rows(problem, b, h), span.first, span.count, x.head_dim, raw_rows, problem.width);
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

// Rows of head `head` in a contiguous gradient, none where it is not wanted.
void add_gradient_ahead(const rf_attention_args& x, const void* gradient, int64_t width, int64_t b, int64_t tokens,
                        int64_t heads, int64_t head, const Span& span, RowsAhead& ahead) {
  if (gradient == nullptr) return;
  const HeadRows rows = head_rows(x.dtype, gradient, (b * tokens * heads + head) * width, heads * width);
  add_rows_ahead<Access::kWrite>(rows, span.first, span.count, width, element_bytes(x.dtype), ahead);
}

// The queries after these, in the same head or in the one that is, for most, the same thread's next.
void add_next_queries_ahead(const AttentionProblem& problem, const rf_attention_grads& grads, int64_t b, int64_t h,
                            const KeyPart& part, const Span& queries, RowsAhead& ahead) {
  const rf_attention_args& x = problem.args;
  const int64_t element = element_bytes(x.dtype);
  const bool same_head = queries.first + queries.count < x.queries;
  const int64_t head = same_head ? h : h + 1, first = same_head ? queries.first + queries.count : 0;
  if (head == x.heads) return;
  const int64_t count = std::min(queries.count, x.queries - first);
  add_keys_ahead(problem, b, head, part.first, kKeyTile, ahead);
  add_rows_ahead<Access::kRead>(out_rows(x, b, head), first, count, x.value_dim, element, ahead);
  add_rows_ahead<Access::kRead>(y_rows(x, grads, b, head), first, count, x.value_dim, element, ahead);
  add_rows_ahead<Access::kRead>(query_rows(problem, b, head), first, count, x.head_dim, element, ahead);
}

// What is read after a tile of keys, and what is written after this group of queries and after the last one.
void look_ahead(const AttentionProblem& problem, const rf_attention_grads& grads, int64_t b, int64_t h,
                const KeyPart& part, const Span& queries, const Span& keys, RowsAhead& ahead) {
  const rf_attention_args& x = problem.args;
  const int64_t next_key = keys.first + keys.count, key_head = h / problem.group;
  if (next_key < part.end) {
    add_keys_ahead(problem, b, h, next_key, kKeyTile, ahead);
  } else {
    add_next_queries_ahead(problem, grads, b, h, part, queries, ahead);
    add_gradient_ahead(x, grads.q, x.head_dim, b, x.queries, x.heads, h, queries, ahead);
  }
  if (queries.first + queries.count < x.queries) return;
  add_gradient_ahead(x, grads.v, x.value_dim, b, x.keys, x.key_heads, key_head, keys, ahead);
  add_gradient_ahead(x, grads.k, x.head_dim, b, x.keys, x.key_heads, key_head, keys, ahead);
}

// Groups of query tiles in a head.
int64_t query_groups(const rf_attention_args& x) {
  constexpr int64_t kQueries = kBackwardGroup * kQueryTile;
  return (x.queries + kQueries - 1) / kQueries;
}

// Waits for the part before and takes its sums; `step`: of the group among those of all heads.
void take_sums(const AttentionProblem& problem, BackwardSpace& space, const KeyPart& part, int64_t step,
               int64_t tiles) {
  if (part.before == nullptr) return;
  while (part.before->load(std::memory_order_acquire) <= step) std::this_thread::yield();
  const int64_t size = BackwardQueries::sums_size(problem);
  const float* sums = part.sums + step * kBackwardGroup * size;
  for (int64_t i = 0; i < tiles; ++i) space.queries[i].take_sums(problem, sums + i * size);
}

void give_sums(const AttentionProblem& problem, BackwardSpace& space, const KeyPart& part, int64_t step,
               int64_t tiles) {
  const int64_t size = BackwardQueries::sums_size(problem);
  float* sums = part.sums + step * kBackwardGroup * size;
  for (int64_t i = 0; i < tiles; ++i) space.queries[i].give_sums(problem, sums + i * size);
  part.done->store(step + 1, std::memory_order_release);
}

void backward_head(const AttentionProblem& problem, const rf_attention_grads& grads, BackwardSpace& space, int64_t b,
                   int64_t h, const KeyPart& part, const HeadTermGradients& terms) {
  const rf_attention_args& x = problem.args;
  if (grads.key_score != nullptr) {
    space.key_score = static_cast<float*>(grads.key_score) + (b * x.heads + h) * problem.all_keys;
  }
  if (grads.pair_bias != nullptr) {
    const int64_t head = (x.pair_bias.batch == 1 ? 0 : b) * x.pair_bias.heads + (x.pair_bias.heads == 1 ? 0 : h);
    space.pair_bias = static_cast<float*>(grads.pair_bias) + head * problem.all_queries * problem.all_keys;
  }
  int64_t step = h % problem.group * query_groups(x);
  const int64_t* positions = positions_of(x.query_positions, x.query_position_stride_b, b);
  for (int64_t first = 0; first < x.queries; first += kBackwardGroup * kQueryTile, ++step) {
    const Span group(first, std::min(kBackwardGroup * kQueryTile, x.queries - first), positions);
    const int64_t tiles = (group.count + kQueryTile - 1) / kQueryTile;
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t query = first + i * kQueryTile;
      space.queries[i].load(problem, grads, b, h, query, std::min(kQueryTile, x.queries - query));
    }
    take_sums(problem, space, part, step, tiles);
    for (int64_t key = part.first; key < part.end; key += kKeyTile) {
      const int64_t keys = std::min(kKeyTile, part.end - key);
      if (!is_needed(x, b, group, key, keys)) continue;
      space.keys.load(problem, b, h, key, keys);
      space.key_pairs.load(problem, space.keys);
      look_ahead(problem, grads, b, h, part, group, space.keys.span, space.ahead);
      space.ahead.spread(kBlocksOfTile * tiles);
      const bool shifts = problem.query_table.rows != nullptr && steps(group, space.keys.span);
      if (shifts) space.key_panel.fill(problem, h, group, space.keys);
      for (int64_t i = 0; i < tiles; ++i) {
        backward_tile(problem, space, b, h, i, shifts ? &space.key_panel : nullptr, terms);
      }
      space.ahead.finish();
    }
    if (part.done != nullptr) {
      give_sums(problem, space, part, step, tiles);
      continue;
    }
    for (int64_t i = 0; i < tiles; ++i) {
      write_queries(problem, grads, b, h, space.queries[i], space.raw_rows, terms);
    }
  }
}

// c differs between the query heads that share a key head: its gradients are taken head by head.
void take_key_position_gradients(const AttentionProblem& problem, BackwardSpace& space, int64_t b, const KeyPart& part,
                                 const HeadTermGradients& terms) {
  const rf_attention_args& x = problem.args;
  if (x.position_key == nullptr) return;
  const Span all(part.first, part.end - part.first, positions_of(x.key_positions, x.key_position_stride_b, b));
  float* gradient = space.key_gradient + part.first * problem.inner + problem.width;
  add_position_rows(x, all, x.reset_col, gradient, problem.inner, terms.position_key);
  for (int64_t j = 0; j < all.count; ++j) std::fill_n(gradient + j * problem.inner, problem.width, 0.0f);
}

// cos and sin of keys and values; key_gradient and value_gradient are those of rotated vectors.
void write_key_rotations(const AttentionProblem& problem, const rf_attention_grads& grads, BackwardSpace& space,
                         int64_t b, int64_t key_head, const KeyPart& part) {
  const rf_attention_args& x = problem.args;
  const int64_t h = key_head * problem.group;
  for (int64_t first = part.first; first < part.end; first += kKeyTile) {
    const int64_t count = std::min(kKeyTile, part.end - first);
    const Span keys(first, count, positions_of(x.key_positions, x.key_position_stride_b, b));
    const int64_t row = (b * x.keys + first) * x.key_heads + key_head;
    const RotationGradient of_keys(grads.key_cos, grads.key_sin, x.key.pairs, x.key_heads, row);
    if (of_keys.wanted()) {
      load_rows(x.dtype, key_rows(problem, b, h), first, count, x.head_dim, space.raw_rows, problem.width);
      clear_padding(x, b, keys, problem.width, problem.width, space.raw_rows);
      write_rotation_gradients(x.layout, x.key.pairs, count, space.raw_rows, problem.width,
                               space.key_gradient + first * problem.inner, problem.inner, of_keys);
    }
    const RotationGradient of_values(grads.value_cos, grads.value_sin, x.value.pairs, x.key_heads, row);
    if (of_values.wanted()) {
      const int64_t width = problem.value_width;
      load_rows(x.dtype, value_rows(problem, b, h), first, count, x.value_dim, space.raw_rows, width);
      clear_padding(x, b, keys, width, width, space.raw_rows);
      write_rotation_gradients(x.layout, x.value.pairs, count, space.raw_rows, width,
                               space.value_gradient + first * width, width, of_values);
    }
  }
}

void write_keys(const AttentionProblem& problem, const rf_attention_grads& grads, BackwardSpace& space, int64_t b,
                int64_t key_head, const KeyPart& part) {
  const rf_attention_args& x = problem.args;
  const int64_t first = part.first, count = part.end - part.first;
  write_key_rotations(problem, grads, space, b, key_head, part);
  rotate_rows(x.key, x.layout, RotationDirection::kTransposed, b, x.keys, first, count,
              space.key_gradient + first * problem.inner, problem.inner, {problem.rotation_heads[1], key_head});
  rotate_rows(x.value, x.layout, RotationDirection::kTransposed, b, x.keys, first, count,
              space.value_gradient + first * problem.value_width, problem.value_width,
              {problem.rotation_heads[2], key_head});
  for (int64_t j = first; j < part.end; ++j) {
    float* gradient = space.key_gradient + j * problem.inner;
    if (x.query_table.rows != nullptr) {
      add_scaled(1.0f, space.raw_key_gradient + j * problem.width, problem.width, gradient);
    }
    const int64_t row = (b * x.keys + j) * x.key_heads + key_head;
    if (grads.k != nullptr) store_row(x.dtype, gradient, x.head_dim, 1, grads.k, row * x.head_dim);
    if (grads.v != nullptr) {
      store_row(x.dtype, space.value_gradient + j * problem.value_width, x.value_dim, 1, grads.v, row * x.value_dim);
    }
  }
}

void backward_heads(const AttentionProblem& problem, const rf_attention_grads& grads, int64_t b, int64_t key_head,
                    const KeyPart& part, const HeadTermGradients* terms, void* memory) {
  const rf_attention_args& x = problem.args;
  Arena arena(memory);
  BackwardSpace space(problem, arena, std::min(kBackwardGroup, (x.queries + kQueryTile - 1) / kQueryTile));
  std::fill_n(space.guarded_weights, kGuardFloats, 0.0f);
  std::fill_n(space.guarded_scores, kGuardFloats, 0.0f);
  const auto clear = [&](float* rows, int64_t width) {
    std::fill_n(rows + part.first * width, (part.end - part.first) * width, 0.0f);
  };
  clear(space.key_gradient, problem.inner);
  clear(space.value_gradient, problem.value_width);
  if (x.query_table.rows != nullptr) clear(space.raw_key_gradient, problem.width);
  for (int64_t i = 0; i < problem.group; ++i) {
    const int64_t h = key_head * problem.group + i;
    backward_head(problem, grads, space, b, h, part, terms[h]);
    take_key_position_gradients(problem, space, b, part, terms[h]);
  }
  write_keys(problem, grads, space, b, key_head, part);
}

int64_t backward_space_bytes(const AttentionProblem& problem) {
  Arena arena(nullptr);
  const BackwardSpace space(problem, arena, kBackwardGroup);
  return arena.used();
}

int64_t query_sums(const AttentionProblem& problem) {
  return problem.group * query_groups(problem.args) * kBackwardGroup * BackwardQueries::sums_size(problem);
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rf::core {

HWY_EXPORT(backward_heads);
HWY_EXPORT(backward_space_bytes);
HWY_EXPORT(query_sums);

int64_t attention_backward_bytes(const AttentionProblem& problem) {
  return HWY_DYNAMIC_DISPATCH(backward_space_bytes)(problem);
}

int64_t attention_query_sums(const AttentionProblem& problem) {
  return HWY_DYNAMIC_DISPATCH(query_sums)(problem);
}

void attention_backward_heads(const AttentionProblem& problem, const rf_attention_grads& grads, int64_t b,
                              int64_t key_head, const KeyPart& part, const HeadTermGradients* terms, void* space) {
  HWY_DYNAMIC_DISPATCH(backward_heads)(problem, grads, b, key_head, part, terms, space);
}

}  // namespace rf::core
#endif
