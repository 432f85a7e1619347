// Linear attention, forward (the equation is in rf/linear_attention.h), a chunk of tokens at a time: keys of earlier
// chunks by their sums S = sum (R g) v^T and z = sum g, those of the same chunk by the products of its pairs.
//
//   num_m = (R f_m) S  +  sum over the chunk's keys n <= m of ((R f_m) . (R g_n)) v_n
//   den_m = eps + f_m . (z + sum over the same keys of g_n)
//
// It does not split a head's sequence over threads.
#include "linear_attention/problem.h"

#include <algorithm>

#include "common/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linear_attention/forward.cpp"
#include "hwy/foreach_target.h"
// The list of targets, then each of them.
#include "hwy/highway.h"
#include "linear_attention/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

struct LinearForward {
  LinearForward(const LinearProblem& linear_problem, int64_t entry, int64_t head, Arena& arena)
      : problem(linear_problem),
        x(problem.args),
        b(entry),
        key_head(head),
        queries(problem, x.query, arena),
        keys(problem, x.key, arena),
        values(arena.take<float>(kChunk * problem.value_width)),
        out(arena.take<float>(kChunk * problem.value_width)),
        prefix(arena.take<float>(kChunk * problem.width)),
        key_columns(arena.take<float>(problem.width * kChunk)),
        pairs(arena.take<float>(kPairFloats)),
        zeros(arena.take<float>(problem.value_width)),
        sum(x.features * problem.value_width, arena),
        norm(problem.width, arena) {}

  void begin() const;
  void take_keys(const Chunk& chunk) const;
  void answer(const Chunk& chunk, const Chunk& next, int64_t h, RowsAhead& ahead) const;
  void write(const Chunk& chunk, int64_t h) const;
  void add_keys(const Chunk& chunk, const Chunk& next, RowsAhead& ahead) const;
  void keep_state() const;
  double* state(int64_t f) const {
    return x.state + ((b * x.key_heads + key_head) * x.features + f) * (x.value_dim + 1);
  }

  const LinearProblem& problem;
  const rf_linear_attention_args& x;
  int64_t b, key_head;
  FeatureRows queries, keys;
  float *values, *out;  // [kChunk][value_width]
  float* prefix;        // [kChunk][width]: the sum of g up to each key
  float* key_columns;   // [width][kChunk]
  float* pairs;         // [queries][keys]
  float* zeros;
  RunningSum sum;   // S, [F][value_width]
  RunningSum norm;  // z, [width]
};

void LinearForward::begin() const {
  sum.clear();
  norm.clear();
  std::fill_n(zeros, problem.value_width, 0.0f);
  if (x.state == nullptr) return;
  const auto split = [](double value, float& nearest, float& lost) {
    nearest = static_cast<float>(value);
    lost = static_cast<float>(nearest - value);
  };
  for (int64_t f = 0; f < x.features; ++f) {
    const int64_t row = f * problem.value_width;
    for (int64_t e = 0; e < x.value_dim; ++e) split(state(f)[e], sum.sum[row + e], sum.lost[row + e]);
    split(state(f)[x.value_dim], norm.sum[f], norm.lost[f]);
  }
}

void LinearForward::keep_state() const {
  if (x.state == nullptr) return;
  const auto joined = [](float nearest, float lost) { return static_cast<double>(nearest) - lost; };
  for (int64_t f = 0; f < x.features; ++f) {
    const int64_t row = f * problem.value_width;
    for (int64_t e = 0; e < x.value_dim; ++e) state(f)[e] = joined(sum.sum[row + e], sum.lost[row + e]);
    state(f)[x.value_dim] = joined(norm.sum[f], norm.lost[f]);
  }
}

void LinearForward::take_keys(const Chunk& chunk) const {
  load_keys(problem, b, key_head, chunk, keys, values);
  sum_prefixes(norm.sum, keys.under, chunk.keys, problem.width, norm.added, prefix);
  if (chunk.paired()) transpose(keys.rotated, problem.width, chunk.keys, problem.width, key_columns, kChunk);
}

void LinearForward::answer(const Chunk& chunk, const Chunk& next, int64_t h, RowsAhead& ahead) const {
  load_queries(problem, b, h, chunk, queries);
  add_queries_ahead(x, b, h, next, ahead);
  multiply_into(rows_of(queries.rotated, problem.width), sum.sum, problem.value_width, chunk.queries,
                problem.value_width, x.features, zeros, 0, out, &ahead);
  ahead.finish();
  if (chunk.paired()) {
    multiply_pairs(Triangle::kLower, chunk.queries, queries.rotated, problem.width, x.features, key_columns, pairs);
    add_pairs(Triangle::kLower, chunk.queries, pairs, values, problem.value_width, out);
  }
  write(chunk, h);
}

void LinearForward::write(const Chunk& chunk, int64_t h) const {
  const int64_t prefix_stride = chunk.paired() ? problem.width : 0;
  const float* sums = chunk.paired() ? prefix : norm.sum;
  const auto eps = static_cast<float>(x.eps);
  for (int64_t i = 0; i < chunk.queries; ++i) {
    const int64_t t = chunk.first_query + i;
    const float denominator = dot(queries.under + i * problem.width, sums + i * prefix_stride, problem.width) + eps;
    store_row(x.dtype, out + i * problem.value_width, x.value_dim, denominator == 0 ? 0 : 1 / denominator, x.out,
              b * x.out_stride_b + t * x.out_stride_t + h * x.out_stride_h);
    if (x.denominators != nullptr) x.denominators[(b * x.heads + h) * x.queries + t] = denominator;
  }
}

void LinearForward::add_keys(const Chunk& chunk, const Chunk& next, RowsAhead& ahead) const {
  add_keys_ahead(x, b, key_head, next, ahead);
  multiply_into(columns_of(keys.rotated, problem.width), values, problem.value_width, x.features, problem.value_width,
                chunk.keys, zeros, 0, sum.added, &ahead);
  ahead.finish();
  sum.add();
  norm.add();
}

void forward_head(const LinearProblem& problem, int64_t b, int64_t key_head, void* memory) {
  Arena arena(memory);
  const LinearForward forward(problem, b, key_head, arena);
  forward.begin();
  RowsAhead ahead;
  for (int64_t i = 0; i < problem.plan.count(); ++i) {
    const Chunk chunk = problem.plan.at(i), next = i + 1 < problem.plan.count() ? problem.plan.at(i + 1) : Chunk{};
    if (chunk.keys > 0) forward.take_keys(chunk);
    for (int64_t j = 0; chunk.queries > 0 && j < problem.group; ++j) {
      forward.answer(chunk, next, key_head * problem.group + j, ahead);
    }
    if (chunk.keys > 0) forward.add_keys(chunk, next, ahead);
  }
  forward.keep_state();
}

int64_t forward_bytes(const LinearProblem& problem) {
  Arena arena(nullptr);
  const LinearForward forward(problem, 0, 0, arena);
  return arena.used();
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rf::core {

HWY_EXPORT(forward_head);
HWY_EXPORT(forward_bytes);

int64_t linear_forward_bytes(const LinearProblem& problem) {
  return HWY_DYNAMIC_DISPATCH(forward_bytes)(problem);
}

void linear_forward_head(const LinearProblem& problem, int64_t b, int64_t key_head, void* space) {
  HWY_DYNAMIC_DISPATCH(forward_head)(problem, b, key_head, space);
}

}  // namespace rf::core
#endif
