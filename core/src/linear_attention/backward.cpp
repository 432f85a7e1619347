// Linear attention, backward, in two halves that go through the chunks in opposite orders, each with the sums of the
// chunks it has passed, so sums of other places are not stored. With y the gradient of out and d the denominator:
//
//   a_m = y_m / d_m      c_m = -(y_m . out_m) / d_m
//   forwards:   d(R f_m) = S_m a_m     df_m += c_m z_m      S_m = sum_{n <= m} (R g_n) v_n^T    z_m = sum_{n <= m} g_n
//   backwards:  d(R g_n) = P_n v_n     dg_n += c'_n         P_n = sum_{m >= n} (R f_m) a_m^T
//               dv_n     = P_n^T (R g_n)                    c'_n = sum_{m >= n} c_m f_m
//
// Sums within a chunk are by the products of its pairs, as in the forward, and exponents M of keys shrink them as
// there: by e^(M_n - M_m) between a key and a query. P is the sum over the query heads that read a key head, so their
// parts are added in order as they arise.
#include <algorithm>

#include "common/simd_targets.h"
#include "linear_attention/problem.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linear_attention/backward.cpp"
#include "hwy/foreach_target.h"
// Lists the targets, then compiles this file for each one.
#include "hwy/highway.h"
#include "linear_attention/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// a and c of a chunk's queries.
struct OutputGradient {
  float* scaled;  // a, [kChunk][value_width]
  float* factor;  // c, [kChunk]
  float* out;     // [kChunk][value_width]

  OutputGradient(const LinearProblem& problem, Arena& arena)
      : scaled(arena.take<float>(kChunk * problem.value_width)),
        factor(arena.take<float>(kChunk)),
        out(arena.take<float>(kChunk * problem.value_width)) {}

  void load(const LinearProblem& problem, const rf_linear_attention_grads& grads, int64_t b, int64_t h,
            const Chunk& chunk) const {
    const rf_linear_attention_args& x = problem.args;
    const int64_t first = chunk.first_query, count = chunk.queries;
    load_rows(x.dtype, out_rows(x.dtype, grads, b, h), first, count, x.value_dim, scaled, problem.value_width);
    load_rows(x.dtype, out_rows(x.dtype, x, b, h), first, count, x.value_dim, out, problem.value_width);
    const FloatTag d;
    for (int64_t i = 0; i < chunk.queries; ++i) {
      const float denominator = x.denominators[(b * x.heads + h) * x.queries + chunk.first_query + i];
      const float inverse = denominator == 0 ? 0 : 1 / denominator;
      float* y = scaled + i * problem.value_width;
      factor[i] = -inverse * dot(y, out + i * problem.value_width, problem.value_width);
      for (int64_t e = 0; e < problem.value_width; e += kLanes) {
        hn::StoreU(hn::Mul(hn::LoadU(d, y + e), hn::Set(d, inverse)), d, y + e);
      }
    }
  }
};

// Rows of a head into a contiguous [B,tokens,heads,columns].
void store_rows(rf_dtype dtype, const float* rows, int64_t stride, int64_t count, int64_t columns, int64_t row,
                int64_t heads, void* to) {
  for (int64_t i = 0; i < count; ++i) {
    store_row(dtype, rows + i * stride, columns, 1, to, (row + i * heads) * columns);
  }
}

// Prefetches the query rows of a chunk, and the rows of dq if a pass writes it (else NULL).
void add_query_rows_ahead(const rf_linear_attention_args& x, const rf_linear_attention_grads& grads, const void* dq,
                          int64_t b, int64_t h, const Chunk& next, RowsAhead& ahead) {
  const int64_t element = element_bytes(x.dtype), first = next.first_query, count = next.queries;
  add_rotation_ahead(x.query, b, x.queries, first, count, ahead);
  add_rows_ahead<Access::kRead>(out_rows(x.dtype, grads, b, h), first, count, x.value_dim, element, ahead);
  add_rows_ahead<Access::kRead>(out_rows(x.dtype, x, b, h), first, count, x.value_dim, element, ahead);
  add_rows_ahead<Access::kRead>(query_rows(x, b, h), first, count, x.features, element, ahead);
  if (dq != nullptr) {
    const HeadRows rows = head_rows(x.dtype, dq, (b * x.queries * x.heads + h) * x.features, x.heads * x.features);
    add_rows_ahead<Access::kWrite>(rows, first, count, x.features, element, ahead);
  }
  ahead.spread(kBlocksOfProduct);
}

struct QueryGradient : KeysPass {
  QueryGradient(const LinearProblem& linear_problem, const rf_linear_attention_grads& gradients, int64_t sequence,
                int64_t head, Arena& arena)
      : KeysPass(linear_problem, LinearPass::kQueryGradient, sequence, head, arena),
        grads(gradients),
        y(problem, arena),
        gradient(arena.take<float>(kChunk * problem.width)),
        plain(arena.take<float>(kChunk * problem.width)),
        scratch(arena.take<float>(kChunk * problem.width)) {}

  void take(const Chunk& chunk, const Chunk& next, bool answers) { take_keys_and_answer(*this, chunk, next, answers); }
  void answer(const Chunk& chunk, const Chunk& next, int64_t h);
  void add_keys(const Chunk& chunk, const Chunk& next);

  const rf_linear_attention_grads& grads;
  OutputGradient y;
  float* gradient;  // [kChunk][width]: of R f
  float* plain;     // [kChunk][width]: of f in the denominator
  float* scratch;   // [kChunk][width]
};

void QueryGradient::answer(const Chunk& chunk, const Chunk& next, int64_t h) {
  const int64_t width = problem.width;
  const Decays& decays = sums.decays;
  y.load(problem, grads, b, h, chunk);
  add_query_rows_ahead(x, grads, grads.q, b, h, next, ahead);
  multiply_into(rows_of(y.scaled, problem.value_width), sums.matrix.total, width, chunk.queries, width, x.value_dim,
                zeros, 0, gradient, &ahead);
  ahead.finish();
  if (chunk.paired()) {
    if (decays.any) scale_rows(decays.from_first, chunk.queries, width, gradient);
    multiply_pairs(Triangle::kLower, chunk.queries, y.scaled, problem.value_width, x.value_dim, columns, pairs);
    if (decays.any) shrink_pairs(Triangle::kLower, chunk.queries, decays, pairs);
    add_pairs(Triangle::kLower, chunk.queries, pairs, keys.rotated, width, gradient);
  }
  const bool separate = FeatureRows::is_plain(problem, x.query);
  if (separate) std::fill_n(plain, chunk.queries * width, 0.0f);
  for (int64_t i = 0; i < chunk.queries; ++i) {
    add_scaled(y.factor[i], key_sum(chunk, i), width, (separate ? plain : gradient) + i * width);
  }
  to_given(problem, x.query, b, x.queries, chunk.first_query, chunk.queries, query_rows(x, b, h), nullptr,
           separate ? plain : nullptr, gradient, scratch);
  store_rows(x.dtype, gradient, width, chunk.queries, x.features, (b * x.queries + chunk.first_query) * x.heads + h,
             x.heads, grads.q);
}

void QueryGradient::add_keys(const Chunk& chunk, const Chunk& next) {
  add_keys_ahead(x, b, key_head, next, ahead);
  if (sums.decays.any) scale_rows(sums.decays.from_last, chunk.keys, problem.width, keys.rotated);
  multiply_into(columns_of(values, problem.value_width), keys.rotated, problem.width, x.value_dim, problem.width,
                chunk.keys, zeros, 0, sums.matrix.added, &ahead);
  ahead.finish();
  sums.add();
}

void query_gradient(const LinearProblem& problem, const rf_linear_attention_grads& grads, const LinearTask& task,
                    void* memory) {
  Arena arena(memory);
  QueryGradient pass(problem, grads, task.sequence, task.key_head, arena);
  std::fill_n(pass.zeros, problem.width, 0.0f);
  walk(task, pass);
}

struct KeyGradient {
  KeyGradient(const LinearProblem& linear_problem, const rf_linear_attention_grads& gradients, int64_t sequence,
              int64_t head, Arena& arena)
      : problem(linear_problem),
        x(problem.args),
        grads(gradients),
        key_head(head),
        keys(problem, x.key, arena),
        queries(problem, x.query, arena),
        y(problem, arena),
        values(arena.take<float>(kChunk * problem.value_width)),
        query_columns(arena.take<float>(problem.width * kChunk)),
        y_columns(arena.take<float>(problem.value_width * kChunk)),
        pairs(arena.take<float>(kPairFloats)),
        suffix(arena.take<float>(kChunk * problem.width)),
        gradient(arena.take<float>(kChunk * problem.width)),
        value_gradient(arena.take<float>(kChunk * problem.value_width)),
        scratch(arena.take<float>(kChunk * problem.width)),
        zeros(arena.take<float>(std::max(problem.width, problem.value_width))),
        total_columns(arena.take<float>(problem.value_width * problem.width)),
        sums(problem, LinearPass::kKeyGradient, sequence, head, arena),
        b(sums.of.entry) {}

  void take(const Chunk& chunk, const Chunk& next, bool answers);
  void take_keys(const Chunk& chunk, const Chunk& next);
  void take_queries(const Chunk& chunk, const Chunk& next, int64_t h, bool answers);
  void answer_pairs(const Chunk& chunk) const;
  void add_suffixes(const Chunk& chunk, bool answers) const;
  void write_keys(const Chunk& chunk) const;

  const LinearProblem& problem;
  const rf_linear_attention_args& x;
  const rf_linear_attention_grads& grads;
  int64_t key_head;
  FeatureRows keys, queries;
  OutputGradient y;
  float* values;          // [kChunk][value_width]
  float* query_columns;   // R f, [width][kChunk]
  float* y_columns;       // a, [value_width][kChunk]
  float* pairs;           // [keys][queries]
  float* suffix;          // c', [kChunk][width]
  float* gradient;        // [kChunk][width]: of R g
  float* value_gradient;  // [kChunk][value_width]
  float* scratch;         // [kChunk][width]
  float* zeros;
  float* total_columns;  // P^T, [value_width][width]
  PassSums sums;         // P, [F][value_width], and c'
  int64_t b;
  RowsAhead ahead;
};

void KeyGradient::take(const Chunk& chunk, const Chunk& next, bool answers) {
  sums.load(chunk);
  const bool has_keys = answers && chunk.keys > 0;
  if (has_keys) take_keys(chunk, next);
  if (chunk.queries > 0 || sums.decays.any) {
    std::fill_n(sums.matrix.added, sums.sizes.matrix, 0.0f);
    std::fill_n(sums.row.added, sums.sizes.row, 0.0f);
  }
  for (int64_t j = 0; chunk.queries > 0 && j < problem.group; ++j) {
    take_queries(chunk, next, key_head * problem.group + j, answers);
  }
  if (has_keys) write_keys(chunk);
  if (chunk.queries > 0 || sums.decays.any) sums.add();
}

// The contribution of later chunks to the keys.
void KeyGradient::take_keys(const Chunk& chunk, const Chunk& next) {
  const int64_t width = problem.width, value_width = problem.value_width;
  const Decays& decays = sums.decays;
  load_keys(problem, b, key_head, chunk, keys, values);
  transpose(sums.matrix.total, value_width, x.features, value_width, total_columns, width);
  add_keys_ahead(x, b, key_head, next, ahead);
  multiply_into(rows_of(keys.rotated, width), sums.matrix.total, value_width, chunk.keys, value_width, x.features,
                zeros, 0, value_gradient, &ahead);
  ahead.finish();
  multiply_into(rows_of(values, value_width), total_columns, width, chunk.keys, width, x.value_dim, zeros, 0, gradient);
  for (int64_t i = 0; i < chunk.keys; ++i) std::copy_n(sums.row.total, width, suffix + i * width);
  if (!decays.any) return;
  scale_rows(decays.from_last, chunk.keys, value_width, value_gradient);
  for (float* rows : {gradient, suffix}) scale_rows(decays.from_last, chunk.keys, width, rows);
}

// The contribution of one query head to the keys of its chunk and to the sums.
void KeyGradient::take_queries(const Chunk& chunk, const Chunk& next, int64_t h, bool answers) {
  load_queries(problem, b, h, chunk, queries);
  y.load(problem, grads, b, h, chunk);
  add_suffixes(chunk, answers);
  if (answers && chunk.paired()) answer_pairs(chunk);
  if (sums.decays.any) scale_rows(sums.decays.from_first, chunk.queries, problem.width, queries.rotated);
  add_query_rows_ahead(x, grads, nullptr, b, h, next, ahead);
  multiply_into(columns_of(queries.rotated, problem.width), y.scaled, problem.value_width, x.features,
                problem.value_width, chunk.queries, sums.matrix.added, problem.value_width, sums.matrix.added, &ahead);
  ahead.finish();
}

void KeyGradient::answer_pairs(const Chunk& chunk) const {
  const int64_t width = problem.width, value_width = problem.value_width;
  const Decays& decays = sums.decays;
  transpose(queries.rotated, width, chunk.queries, width, query_columns, kChunk);
  transpose(y.scaled, value_width, chunk.queries, value_width, y_columns, kChunk);
  multiply_pairs(Triangle::kUpper, chunk.keys, keys.rotated, width, x.features, query_columns, pairs);
  if (decays.any) shrink_pairs(Triangle::kUpper, chunk.keys, decays, pairs);
  add_pairs(Triangle::kUpper, chunk.keys, pairs, y.scaled, value_width, value_gradient);
  multiply_pairs(Triangle::kUpper, chunk.keys, values, value_width, x.value_dim, y_columns, pairs);
  if (decays.any) shrink_pairs(Triangle::kUpper, chunk.keys, decays, pairs);
  add_pairs(Triangle::kUpper, chunk.keys, pairs, queries.rotated, width, gradient);
}

void KeyGradient::add_suffixes(const Chunk& chunk, bool answers) const {
  const FloatTag d;
  const int64_t width = problem.width;
  const Decays& decays = sums.decays;
  for (int64_t i = 0; i < width; i += kLanes) {
    auto sum = hn::Zero(d);
    for (int64_t m = chunk.queries - 1; m >= 0; --m) {
      if (decays.any && m + 1 < chunk.queries) sum = hn::Mul(sum, hn::Set(d, decays.step[m + 1]));
      sum = hn::MulAdd(hn::Set(d, y.factor[m]), hn::LoadU(d, queries.under + m * width + i), sum);
      if (!answers || !chunk.paired()) continue;
      float* to = suffix + m * width + i;
      hn::StoreU(hn::Add(hn::LoadU(d, to), sum), d, to);
    }
    if (decays.any) sum = hn::Mul(sum, hn::Set(d, decays.from_first[0]));
    float* to = sums.row.added + i;
    hn::StoreU(hn::Add(hn::LoadU(d, to), sum), d, to);
  }
}

void KeyGradient::write_keys(const Chunk& chunk) const {
  const bool separate = FeatureRows::is_plain(problem, x.key);
  const int64_t row = (b * x.keys + chunk.first_key) * x.key_heads + key_head;
  if (!separate) add_scaled(1, suffix, chunk.keys * problem.width, gradient);
  const float* features = separate || x.key.cos == nullptr ? keys.under : nullptr;
  to_given(problem, x.key, b, x.keys, chunk.first_key, chunk.keys, key_rows(x, b, key_head), features,
           separate ? suffix : nullptr, gradient, scratch);
  clear_masked(x, b, chunk.first_key, chunk.keys, problem.width, gradient);
  if (grads.k != nullptr) {
    store_rows(x.dtype, gradient, problem.width, chunk.keys, x.features, row, x.key_heads, grads.k);
  }
  if (grads.v != nullptr) {
    store_rows(x.dtype, value_gradient, problem.value_width, chunk.keys, x.value_dim, row, x.key_heads, grads.v);
  }
}

void key_gradient(const LinearProblem& problem, const rf_linear_attention_grads& grads, const LinearTask& task,
                  void* memory) {
  Arena arena(memory);
  KeyGradient pass(problem, grads, task.sequence, task.key_head, arena);
  std::fill_n(pass.zeros, std::max(problem.width, problem.value_width), 0.0f);
  walk(task, pass);
}

int64_t query_gradient_bytes(const LinearProblem& problem) {
  Arena arena(nullptr);
  const QueryGradient pass(problem, {}, 0, 0, arena);
  return arena.used();
}

int64_t key_gradient_bytes(const LinearProblem& problem) {
  Arena arena(nullptr);
  const KeyGradient pass(problem, {}, 0, 0, arena);
  return arena.used();
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rf::core {

HWY_EXPORT(query_gradient);
HWY_EXPORT(query_gradient_bytes);
HWY_EXPORT(key_gradient);
HWY_EXPORT(key_gradient_bytes);

int64_t linear_query_gradient_bytes(const LinearProblem& problem) {
  return HWY_DYNAMIC_DISPATCH(query_gradient_bytes)(problem);
}

void linear_query_gradient(const LinearProblem& problem, const rf_linear_attention_grads& grads, const LinearTask& task,
                           void* space) {
  HWY_DYNAMIC_DISPATCH(query_gradient)(problem, grads, task, space);
}

int64_t linear_key_gradient_bytes(const LinearProblem& problem) {
  return HWY_DYNAMIC_DISPATCH(key_gradient_bytes)(problem);
}

void linear_key_gradient(const LinearProblem& problem, const rf_linear_attention_grads& grads, const LinearTask& task,
                         void* space) {
  HWY_DYNAMIC_DISPATCH(key_gradient)(problem, grads, task, space);
}

}  // namespace rf::core
#endif
