// Fused attention, forward (the equation is in rf/attention.h): a streaming softmax over tiles of keys (Milakov and
// Gimelshein 2018, Dao et al. 2022), with every term of the equation added where its tile of scores is in the cache.
//
//   for each tile of keys, read and rotated once for a group of query tiles:
//     raw[key][query]    = [R^k k, c] . [R^q q + u, a] + table terms          queries in the lanes
//     weight             = exp2(score - origin), down the lanes
//     out[query][column] = out * exp2(origin before - origin) + sum_key weight (R^v v + V[r])
//
// A query's origin is a score so near the largest so far that no weight is above 2^8; most tiles do not move it. Keys
// come in order, so a query's result only depends on its row of the equation. Scores are not kept, and keys of small
// weight are not skipped.
#include "attention/kernels.h"

#include <algorithm>
#include <cmath>

#include "common/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/forward.cpp"
#include "hwy/foreach_target.h"
// Lists the targets, then compiles this file for each one.
#include "attention/gate-inl.h"
#include "attention/product-inl.h"
#include "attention/sides-inl.h"
#include "attention/tables-inl.h"
#include "attention/tile-inl.h"
#include "attention/tile_scores-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// The state of a query tile's online softmax.
struct OnlineSoftmax {
  bool empty = true;        // no key yet, and out is empty
  float* out = nullptr;     // [value_width][kQueryTile]
  float* origin = nullptr;  // one number per lane
  float* sum = nullptr;
  float* edges = nullptr;     // [2]: weights of keys that read the first and the last row of V
  float* of_table = nullptr;  // [queries][value_width]: contributions of the other rows of V

  OnlineSoftmax() = default;
  OnlineSoftmax(const AttentionProblem& problem, Arena& arena)
      : out(arena.take<float>(kQueryTile * problem.value_width)),
        origin(arena.take<float>(kQueryTile)),
        sum(arena.take<float>(kQueryTile)),
        edges(arena.take<float>(2 * kQueryTile)),
        of_table(arena.take<float>(problem.value_table.rows == nullptr ? 0 : kQueryTile * problem.value_width)) {}
  void clear(const AttentionProblem& problem) {
    if (problem.value_table.rows != nullptr) std::fill_n(of_table, kQueryTile * problem.value_width, 0.0f);
    std::fill_n(origin, kQueryTile, kMinusInfinity);
    std::fill_n(sum, kQueryTile, 0.0f);
    std::fill_n(edges, 2 * kQueryTile, 0.0f);
  }
};

inline constexpr int64_t kBlocksOfTile = 18;  // approximately, of both products

struct ForwardSpace : ProductSpace {
  ForwardSpace(const AttentionProblem& problem, Arena& arena, int64_t tiles)
      : keys(problem, arena),
        position(problem, arena),
        gate(problem, Gate::Use::kForward, arena),
        mask(arena),
        dropout(problem, arena),
        key_panel(problem, arena),
        guarded_tile(arena.take<float>(kTileFloats + 2 * kGuardFloats)),
        copies(arena.take<float>(problem.has_tables() ? kPanelRows * std::max(problem.width, problem.value_width) : 0)),
        pairs(arena.take<uint32_t>(kTileFloats / 2)),
        out_rows(arena.take<float>(kQueryTile * problem.value_width)),
        factors(arena.take<float>(kQueryTile)) {
    for (int64_t i = 0; i < tiles; ++i) {
      queries[i] = QuerySide(problem, arena);
      running[i] = OnlineSoftmax(problem, arena);
      panels[i] = QueryPanel(problem, arena);
    }
  }
  KeySide keys;
  PositionScores position;
  Gate gate;
  TileMask mask;
  TileDropout dropout;
  KeyPanel key_panel;
  float* guarded_tile;
  float* tile() { return guarded_tile + kGuardFloats; }
  float* copies;    // rows by distance beyond the ends of a table
  uint32_t* pairs;  // weights as bfloat16, two keys in each
  float* out_rows;  // [queries][value_width]: of one tile, to be written
  float* factors;
  QuerySide queries[kForwardGroup];
  OnlineSoftmax running[kForwardGroup];
  QueryPanel panels[kForwardGroup];
};

HWY_NOINLINE void scale_columns(const float* factors, int64_t count, int64_t width, float* columns) {
  const FloatTag d;
  for (int64_t c = 0; c < width; ++c, columns += kQueryTile) {
    for (int64_t l = 0; l < count; l += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, columns + l), hn::LoadU(d, factors + l)), d, columns + l);
    }
  }
}

// Whether weights are only multiplied with values, as bfloat16; their floats are then not needed.
HWY_INLINE bool keeps_pairs_alone(const AttentionProblem& problem, const ForwardSpace& space) {
  return uses_bf16_pairs(problem) && !space.dropout.any() && problem.value_table.rows == nullptr;
}

// exp2(factor raw - origin) of a tile, in place or, where `kPairs`, in `pairs`; adds them to `sum`.
template <int kVectors, bool kPairs>
HWY_INLINE void compute_weights(float* tile, int64_t keys, float factor, const FloatVec (&origin)[kVectors],
                                FloatVec (&sum)[kVectors], uint32_t* pairs) {
  const FloatTag d;
  constexpr int64_t kStep = kPairs ? 2 : 1;
  const auto weight = [&](int64_t j, int l) HWY_ATTR {
    // Rounded as in compute_largest, so that the exponent of the largest score is exactly 0.
    const auto score = hn::Mul(hn::LoadU(d, tile + j * kQueryTile + l * kLanes), hn::Set(d, factor));
    const auto w = exp2(hn::Sub(score, origin[l]));
    sum[l] = hn::Add(sum[l], w);
    return w;
  };
  for (int64_t j = 0; j < keys; j += kStep) {
    HWY_UNROLL(3)
    for (int l = 0; l < kVectors; ++l) {
      const auto first = weight(j, l);
      if constexpr (kPairs) {
        const auto second = j + 1 < keys ? weight(j + 1, l) : hn::Zero(d);
        store_pairs(first, second, pairs + j / 2 * kQueryTile + l * kLanes);
      } else {
        hn::StoreU(first, d, tile + j * kQueryTile + l * kLanes);
      }
    }
  }
}

// Computes weights from raw scores, and moves the origin of a lane, with its sums so far, if scores have risen far
// above it.
template <int kVectors>
HWY_NOINLINE void online_softmax_update(const AttentionProblem& problem, ForwardSpace& space, int64_t queries,
                                        OnlineSoftmax& running) {
  constexpr float kMaxAboveOrigin = 8;
  const FloatTag d;
  const int64_t keys = space.keys.span.count;
  float factor = static_cast<float>(problem.args.scale) * kLog2e;  // from the tile's numbers to a score
  FloatVec largest[kVectors], origin[kVectors], sum[kVectors];
  if (is_plain(problem.args, space.position, space.mask)) {
    compute_largest<kVectors>(space.tile(), keys, factor, largest);
  } else {
    finish_scores<kVectors>(space.tile(), keys, factor, space.position, space.mask, largest);
    factor = 1;
  }
  bool moved = false;
  HWY_UNROLL(3)
  for (int l = 0; l < kVectors; ++l) {
    const auto before = hn::LoadU(d, running.origin + l * kLanes);
    const auto above = hn::Gt(largest[l], hn::Add(before, hn::Set(d, kMaxAboveOrigin)));
    moved = moved || !hn::AllFalse(d, above);
    const auto next = hn::IfThenElse(above, largest[l], before);
    hn::StoreU(next, d, running.origin + l * kLanes);
    // A query without a key so far: its weights are exp2(-infinity - 0).
    origin[l] = hn::IfThenElse(hn::Eq(next, hn::Set(d, kMinusInfinity)), hn::Zero(d), next);
    const auto shrinking = exp2(hn::Sub(before, origin[l]));
    sum[l] = hn::Mul(hn::LoadU(d, running.sum + l * kLanes), shrinking);
    hn::StoreU(shrinking, d, space.factors + l * kLanes);
  }
  if (keeps_pairs_alone(problem, space)) {
    compute_weights<kVectors, true>(space.tile(), keys, factor, origin, sum, space.pairs);
  } else {
    compute_weights<kVectors, false>(space.tile(), keys, factor, origin, sum, space.pairs);
  }
  HWY_UNROLL(3)
  for (int l = 0; l < kVectors; ++l) hn::StoreU(sum[l], d, running.sum + l * kLanes);
  if (!moved || running.empty) return;
  scale_columns(space.factors, queries, problem.value_width, running.out);
  if (problem.value_table.rows == nullptr) return;
  scale_rows(space.factors, queries, problem.value_width, running.of_table);
  for (int64_t i = 0; i < kVectors * kLanes; ++i) {
    running.edges[i] *= space.factors[i];
    running.edges[kQueryTile + i] *= space.factors[i];
  }
}

HWY_NOINLINE void drop_weights(float* tile, int64_t keys, int64_t queries, const TileDropout& dropout) {
  const FloatTag d;
  for (int64_t j = 0; j < keys; ++j) {
    float* row = tile + j * kQueryTile;
    for (int64_t l = 0; l < queries; l += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, row + l), hn::LoadU(d, dropout.row(j) + l)), d, row + l);
    }
  }
}

// out += weight R^v v.
void add_values(const AttentionProblem& problem, ForwardSpace& space, const QuerySide& queries,
                OnlineSoftmax& running) {
  const int64_t keys = space.keys.span.count;
  const bool pairs = uses_bf16_pairs(problem);
  if (pairs && !keeps_pairs_alone(problem, space)) pair_neighbours(space.tile(), keys, kQueryTile, space.pairs);
  Product p = space.product();
  p.a = pairs ? static_cast<const void*>(space.keys.value_columns) : space.keys.values;
  p.a_row = pairs ? kMaxKeyTile / 2 : 1;
  p.a_step = pairs ? 1 : problem.value_width;
  p.b = pairs ? static_cast<const void*>(space.pairs) : space.tile();
  p.start = running.empty ? nullptr : running.out;
  p.c = running.out;
  p.b_step = p.start_row = p.c_row = kQueryTile;
  p.rows = problem.value_width;
  p.vectors = (queries.span.count + kLanes - 1) / kLanes;
  p.depth = pairs ? (keys + 1) / 2 : keys;
  multiply_for(problem, p);
  running.empty = false;
}

// out += weight V[r].
void add_value_rows(const AttentionProblem& problem, ForwardSpace& space, int64_t h, const Span& queries,
                    OnlineSoftmax& running) {
  const Span& keys = space.keys.span;
  if (!steps(queries, keys)) return gather_values(problem, h, queries, keys, space.tile(), running.of_table);
  const TableRows V(problem.value_table, h);
  const Distances distances(queries, keys);
  const Reach reach = distances.reach(V);
  if (reach == Reach::kBelow || reach == Reach::kAbove) {
    return add_columns(space.tile(), keys.count, running.edges + (reach == Reach::kBelow ? 0 : kQueryTile));
  }
  std::fill_n(space.tile() + keys.count * kQueryTile, kGuardFloats, 0.0f);
  const float* rows = rows_at(V, distances, 0, queries.count + keys.count - 1, space.copies);
  add_rows_to_queries(space.tile(), queries.count, keys.count, rows, problem.value_width, running.of_table);
}

// Tile `index` of the group; key_panel: of the whole group, or nullptr.
void forward_tile(const AttentionProblem& problem, ForwardSpace& space, int64_t b, int64_t h, int64_t index,
                  const KeyPanel* key_panel) {
  const rf_attention_args& x = problem.args;
  const QuerySide& queries = space.queries[index];
  OnlineSoftmax& running = space.running[index];
  const Span& keys = space.keys.span;
  if (space.mask.compute(x, b, h, queries.span, keys) == TileMask::Kind::kNone) return;
  const Start start = start_of_scores(problem, h, queries, space.keys, space.panels[index], key_panel,
                                      index * kQueryTile, space.copies, space.gate.start_of(space.tile()));
  space.gate.raw_scores_of(h, queries, space.keys, start, space.product(), space.tile());
  space.position.compute(problem, b, h, queries.span, keys);
  with_vectors(queries.span, [&](auto vectors) {
    online_softmax_update<decltype(vectors)::value>(problem, space, queries.span.count, running);
  });
  if (space.dropout.any()) {
    space.dropout.compute(b, h, queries.span, keys);
    drop_weights(space.tile(), keys.count, queries.span.count, space.dropout);
  }
  add_values(problem, space, queries, running);
  if (problem.value_table.rows != nullptr) add_value_rows(problem, space, h, queries.span, running);
}

// log of the sum of exp(score), -infinity without keys.
void write_log_sums(const AttentionProblem& problem, int64_t b, int64_t h, const Span& queries,
                    const OnlineSoftmax& running) {
  const rf_attention_args& x = problem.args;
  const FloatTag d;
  alignas(64) float log_sums[kQueryTile];
  for (int64_t l = 0; l < kQueryTile; l += kLanes) {
    const auto sum = hn::LoadU(d, running.sum + l), origin = hn::LoadU(d, running.origin + l);
    const auto log_sum = hn::Mul(hn::Add(origin, hn::Log2(d, sum)), hn::Set(d, 0.693147180559945309f));
    const auto empty = hn::Eq(sum, hn::Zero(d));
    hn::Store(hn::IfThenElse(empty, hn::Set(d, kMinusInfinity), hn::IfThenElse(hn::IsNaN(sum), sum, log_sum)), d,
              log_sums + l);
  }
  std::copy_n(log_sums, queries.count, x.log_sum + (b * x.heads + h) * problem.all_queries + queries.first);
}

void write_tile(const AttentionProblem& problem, int64_t b, int64_t h, const QuerySide& queries,
                const OnlineSoftmax& running, float* rows) {
  const rf_attention_args& x = problem.args;
  if (x.log_sum != nullptr) write_log_sums(problem, b, h, queries.span, running);
  if (running.empty) std::fill_n(running.out, kQueryTile * problem.value_width, 0.0f);
  const int64_t lanes = (queries.span.count + kLanes - 1) / kLanes * kLanes;
  transpose(running.out, kQueryTile, problem.value_width, lanes, rows, problem.value_width);
  const TableRows V(problem.value_table, h);
  for (int64_t i = 0; i < queries.span.count; ++i) {
    const int64_t t = queries.span.first + i;
    const float sum = running.sum[i];
    float* out = rows + i * problem.value_width;
    if (V.defined()) {
      add_scaled(1.0f, running.of_table + i * problem.value_width, problem.value_width, out);
      add_scaled(running.edges[i], V.rows, problem.value_width, out);
      add_scaled(running.edges[kQueryTile + i], V.row(V.hi), problem.value_width, out);
    }
    const int64_t offset = b * x.out_stride_b + t * x.out_stride_t + h * x.out_stride_h;
    store_row(x.dtype, out, x.value_dim, sum == 0 ? 0 : 1 / sum, x.out, offset);
  }
}

// Long tiles, if a window leaves no part of a tile unused and no table needs a panel or rows for it.
int64_t key_tile(const AttentionProblem& problem) {
  const rf_attention_args& x = problem.args;
  const bool is_whole = x.window == 0 && !problem.has_tables() && !problem.is_gated_by_vectors();
  return is_whole ? kMaxKeyTile : kKeyTile;
}

// Prefetches the next key tile; after the last one, this task's output rows and the inputs of the next task, which
// usually runs on the same thread.
void look_ahead(const AttentionProblem& problem, int64_t b, int64_t h, const Span& queries, int64_t next_key,
                RowsAhead& ahead) {
  const rf_attention_args& x = problem.args;
  const int64_t tile = key_tile(problem);
  if (next_key < x.keys) return add_keys_ahead(problem, b, h, next_key, tile, ahead);
  const int64_t element = element_bytes(x.dtype);
  const bool same_head = queries.first + queries.count < x.queries;
  const int64_t head = same_head ? h : h + 1, first = same_head ? queries.first + queries.count : 0;
  if (head < x.heads) {
    add_keys_ahead(problem, b, head, 0, tile, ahead);
    add_rows_ahead<Access::kRead>(query_rows(x, b, head), first, std::min(queries.count, x.queries - first), x.head_dim,
                                  element, ahead);
  }
  add_rows_ahead<Access::kWrite>(out_rows(x.dtype, x, b, h), queries.first, queries.count, x.value_dim, element, ahead);
}

void forward_tiles(const AttentionProblem& problem, int64_t b, int64_t h, int64_t first, int64_t tiles, void* memory) {
  const rf_attention_args& x = problem.args;
  Arena arena(memory);
  ForwardSpace space(problem, arena, tiles);
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t query = (first + i) * kQueryTile;
    space.queries[i].load(problem, b, h, query, std::min(kQueryTile, x.queries - query));
    space.running[i].clear(problem);
    space.panels[i].start(problem, h, space.queries[i]);
  }
  const int64_t begin = first * kQueryTile, count = std::min(tiles * kQueryTile, x.queries - begin);
  const Span group(begin, count, positions_of(x.query_positions, x.query_position_stride_b, b));
  // The computation of a tile must not depend on the other tiles of its task.
  const int64_t whole_begin = begin / (kForwardGroup * kQueryTile) * (kForwardGroup * kQueryTile);
  const Span whole_group(whole_begin, std::min(kForwardGroup * kQueryTile, x.queries - whole_begin),
                         positions_of(x.query_positions, x.query_position_stride_b, b));
  std::fill_n(space.guarded_tile, kGuardFloats, 0.0f);
  const int64_t tile = key_tile(problem);
  for (int64_t key = 0; key < x.keys; key += tile) {
    const int64_t keys = std::min(tile, x.keys - key);
    if (!is_needed(x, b, group, key, keys)) continue;
    space.keys.load(problem, b, h, key, keys);
    space.keys.transpose_values(problem);
    look_ahead(problem, b, h, group, key + keys, space.ahead);
    space.ahead.spread(kBlocksOfTile * tiles);
    const bool shifts = problem.query_table.rows != nullptr && steps(whole_group, space.keys.span);
    if (shifts) space.key_panel.fill(problem, h, group, space.keys);
    for (int64_t i = 0; i < tiles; ++i) forward_tile(problem, space, b, h, i, shifts ? &space.key_panel : nullptr);
    space.ahead.finish();
  }
  for (int64_t i = 0; i < tiles; ++i) write_tile(problem, b, h, space.queries[i], space.running[i], space.out_rows);
}

int64_t forward_space_bytes(const AttentionProblem& problem) {
  Arena arena(nullptr);
  const ForwardSpace space(problem, arena, kForwardGroup);
  return arena.used();
}

int64_t query_tile() { return kQueryTile; }

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rf::core {

HWY_EXPORT(forward_tiles);
HWY_EXPORT(forward_space_bytes);
HWY_EXPORT(query_tile);

int64_t attention_query_tile() { return HWY_DYNAMIC_DISPATCH(query_tile)(); }

int64_t attention_forward_bytes(const AttentionProblem& problem) {
  return HWY_DYNAMIC_DISPATCH(forward_space_bytes)(problem);
}

void attention_forward_tiles(const AttentionProblem& problem, int64_t b, int64_t h, int64_t first, int64_t tiles,
                             void* space) {
  HWY_DYNAMIC_DISPATCH(forward_tiles)(problem, b, h, first, tiles, space);
}

}  // namespace rf::core
#endif
