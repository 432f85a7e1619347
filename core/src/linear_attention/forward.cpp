// Linear attention, forward (the equation is in rf/linear_attention.h), a chunk of tokens at a time. Keys of earlier
// chunks enter through their sums S = sum (R g) v^T and z = sum g, keys of the same chunk through the products of its
// pairs.
//
//   num_m = (R f_m) S  +  sum over the chunk's keys n <= m of ((R f_m) . (R g_n)) v_n
//   den_m = eps + f_m . (z + sum over the same keys of g_n)
//
// With exponents M of the keys, S and z are divided by e^M0 of the key before the chunk:
//
//   num_m = e^(M0 - M_m) (R f_m) S  +  sum over the chunk's keys n <= m of e^(M_n - M_m) ((R f_m) . (R g_n)) v_n
#include "linear_attention/problem.h"

#include <algorithm>

#include "common/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linear_attention/forward.cpp"
#include "hwy/foreach_target.h"
// Lists the targets, then compiles this file for each one.
#include "hwy/highway.h"
#include "linear_attention/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

struct LinearForward : KeysPass {
  LinearForward(const LinearProblem& linear_problem, int64_t sequence, int64_t head, Arena& arena)
      : KeysPass(linear_problem, LinearPass::kForward, sequence, head, arena),
        queries(problem, x.query, arena),
        out(arena.take<float>(kChunk * problem.value_width)) {}

  void take(const Chunk& chunk, const Chunk& next, bool answers) { take_keys_and_answer(*this, chunk, next, answers); }
  void answer(const Chunk& chunk, const Chunk& next, int64_t h);
  void write(const Chunk& chunk, int64_t h) const;
  void add_keys(const Chunk& chunk, const Chunk& next);

  FeatureRows queries;
  float* out;  // [kChunk][value_width]
};

void LinearForward::answer(const Chunk& chunk, const Chunk& next, int64_t h) {
  const Decays& decays = sums.decays;
  load_queries(problem, b, h, chunk, queries);
  add_queries_ahead(x, b, h, next, ahead);
  multiply_into(rows_of(queries.rotated, problem.width), sums.matrix.total, problem.value_width, chunk.queries,
                problem.value_width, x.features, zeros, 0, out, &ahead);
  ahead.finish();
  if (chunk.paired()) {
    if (decays.any) scale_rows(decays.from_first, chunk.queries, problem.value_width, out);
    multiply_pairs(Triangle::kLower, chunk.queries, queries.rotated, problem.width, x.features, columns, pairs);
    if (decays.any) shrink_pairs(Triangle::kLower, chunk.queries, decays, pairs);
    add_pairs(Triangle::kLower, chunk.queries, pairs, values, problem.value_width, out);
  }
  write(chunk, h);
}

void LinearForward::write(const Chunk& chunk, int64_t h) const {
  const auto eps = static_cast<float>(x.eps);
  for (int64_t i = 0; i < chunk.queries; ++i) {
    const int64_t t = chunk.first_query + i;
    const float denominator = dot(queries.under + i * problem.width, key_sum(chunk, i), problem.width) + eps;
    store_row(x.dtype, out + i * problem.value_width, x.value_dim, denominator == 0 ? 0 : 1 / denominator, x.out,
              b * x.out_stride_b + t * x.out_stride_t + h * x.out_stride_h);
    if (x.denominators != nullptr) x.denominators[(b * x.heads + h) * x.queries + t] = denominator;
  }
}

void LinearForward::add_keys(const Chunk& chunk, const Chunk& next) {
  add_keys_ahead(x, b, key_head, next, ahead);
  if (sums.decays.any) scale_rows(sums.decays.from_last, chunk.keys, problem.width, keys.rotated);
  multiply_into(columns_of(keys.rotated, problem.width), values, problem.value_width, x.features, problem.value_width,
                chunk.keys, zeros, 0, sums.matrix.added, &ahead);
  ahead.finish();
  sums.add();
}

void forward(const LinearProblem& problem, const LinearTask& task, void* memory) {
  Arena arena(memory);
  LinearForward pass(problem, task.sequence, task.key_head, arena);
  std::fill_n(pass.zeros, problem.value_width, 0.0f);
  walk(task, pass);
  if (task.before == nullptr && task.own == nullptr) {
    keep_state(problem, task.sequence, task.key_head, pass.sums.before);
  }
}

int64_t forward_bytes(const LinearProblem& problem) {
  Arena arena(nullptr);
  const LinearForward pass(problem, 0, 0, arena);
  return arena.used();
}

void add_block_sums(const BorderSums& block, int64_t count, const BorderSums& sums) {
  add_sums(block, decay_between(block.entering, block.leaving), count, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rf::core {

HWY_EXPORT(forward);
HWY_EXPORT(forward_bytes);
HWY_EXPORT(add_block_sums);

int64_t linear_forward_bytes(const LinearProblem& problem) { return HWY_DYNAMIC_DISPATCH(forward_bytes)(problem); }

void linear_forward(const LinearProblem& problem, const LinearTask& task, void* space) {
  HWY_DYNAMIC_DISPATCH(forward)(problem, task, space);
}

void add_block(const BorderSums& block, int64_t count, const BorderSums& sums) {
  HWY_DYNAMIC_DISPATCH(add_block_sums)(block, count, sums);
}

}  // namespace rf::core
#endif
