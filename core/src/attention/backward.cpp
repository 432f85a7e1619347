// Fused attention, backward: probabilities are recomputed tile by tile from the kept log of their sums, and five
// products give the gradients. With y the gradient of a query's output and f the factor of dropout:
//
//   p        = exp2(score - log2 of the sum)
//   dp       = f y . (R^v v + V[r])             delta = y . out = sum p dp
//   dscore   = p (dp - delta)
//   d(R^v v) += f p y        d(R^k k) += s dscore (R^q q + u)        d(R^q q) += s dscore (R^k k)
//
// Tiles of keys are the inner loop for a group of query tiles: a query's sums run over the keys in order, and a key's
// sums over the queries in order, wherever the groups end. Gradients of terms are added per tile.
#include "attention/kernels.h"

#include <algorithm>
#include <thread>

#include "common/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/backward.cpp"
#include "hwy/foreach_target.h"
// Lists the targets, then compiles this file for each one.
#include "attention/backward_results-inl.h"
#include "attention/backward_sides-inl.h"
#include "attention/backward_tile-inl.h"
#include "attention/sides-inl.h"
#include "attention/tile-inl.h"
#include "attention/tile_scores-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

inline constexpr int64_t kBlocksOfTile = 48;  // approximately, of the five products

// Rows of head `head` in a contiguous gradient; empty if it is not wanted.
void add_gradient_ahead(const rf_attention_args& x, const void* gradient, int64_t width, int64_t b, int64_t tokens,
                        int64_t heads, int64_t head, const Span& span, RowsAhead& ahead) {
  if (gradient == nullptr) return;
  const HeadRows rows = head_rows(x.dtype, gradient, (b * tokens * heads + head) * width, heads * width);
  add_rows_ahead<Access::kWrite>(rows, span.first, span.count, width, element_bytes(x.dtype), ahead);
}

// The next queries, in the same head or in the head that the same thread usually takes next.
void add_next_queries_ahead(const AttentionProblem& problem, const rf_attention_grads& grads, int64_t b, int64_t h,
                            const KeyPart& part, const Span& queries, RowsAhead& ahead) {
  const rf_attention_args& x = problem.args;
  const int64_t element = element_bytes(x.dtype);
  const bool same_head = queries.first + queries.count < x.queries;
  const int64_t head = same_head ? h : h + 1, first = same_head ? queries.first + queries.count : 0;
  if (head == x.heads) return;
  const int64_t count = std::min(queries.count, x.queries - first);
  add_keys_ahead(problem, b, head, part.first, kKeyTile, ahead);
  add_rows_ahead<Access::kRead>(out_rows(x.dtype, x, b, head), first, count, x.value_dim, element, ahead);
  add_rows_ahead<Access::kRead>(out_rows(x.dtype, grads, b, head), first, count, x.value_dim, element, ahead);
  add_rows_ahead<Access::kRead>(query_rows(x, b, head), first, count, x.head_dim, element, ahead);
}

// Prefetches the inputs after a tile of keys, and the outputs after this group of queries and after the last group.
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

// Waits for the previous part and takes its sums; `step`: index of the group among the groups of all heads.
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
  clear(space.sums.keys, problem.inner);
  clear(space.sums.values, problem.value_width);
  if (x.query_table.rows != nullptr) clear(space.sums.raw_keys, problem.width);
  for (int64_t i = 0; i < problem.group; ++i) {
    const int64_t h = key_head * problem.group + i;
    backward_head(problem, grads, space, b, h, part, terms[h]);
    take_key_position_gradients(problem, space.sums, b, part, terms[h]);
  }
  write_keys(problem, grads, space.sums, space.raw_rows, b, key_head, part);
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

int64_t attention_query_sums(const AttentionProblem& problem) { return HWY_DYNAMIC_DISPATCH(query_sums)(problem); }

void attention_backward_heads(const AttentionProblem& problem, const rf_attention_grads& grads, int64_t b,
                              int64_t key_head, const KeyPart& part, const HeadTermGradients* terms, void* space) {
  HWY_DYNAMIC_DISPATCH(backward_heads)(problem, grads, b, key_head, part, terms, space);
}

}  // namespace rf::core
#endif
