// Linear attention, backward, in two halves that go through the chunks in opposite orders, each with the sums of what
// it has passed, so that no sum of any place is kept. With y the gradient of out and d the denominator:
//
//   a_m = y_m / d_m      c_m = -(y_m . out_m) / d_m
//   forwards:   d(R f_m) = S_m a_m     df_m += c_m z_m      S_m = sum_{n <= m} (R g_n) v_n^T    z_m = sum_{n <= m} g_n
//   backwards:  d(R g_n) = P_n v_n     dg_n += c'_n         P_n = sum_{m >= n} (R f_m) a_m^T
//               dv_n     = P_n^T (R g_n)                    c'_n = sum_{m >= n} c_m f_m
//
// Sums within a chunk are by the products of its pairs, as in the forward. P is the sum over the query heads that read
// a key head, so that theirs are added up where they arise, in order.
#include <algorithm>

#include "common/simd_targets.h"
#include "linear_attention/problem.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linear_attention/backward.cpp"
#include "hwy/foreach_target.h"
// The list of targets, then each of them.
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
    const HeadRows y_rows =
        head_rows(x.dtype, grads.out, b * grads.out_stride_b + h * grads.out_stride_h, grads.out_stride_t);
    const HeadRows out_rows = head_rows(x.dtype, x.out, b * x.out_stride_b + h * x.out_stride_h, x.out_stride_t);
    load_rows(x.dtype, y_rows, chunk.first_query, chunk.queries, x.value_dim, scaled, problem.value_width);
    load_rows(x.dtype, out_rows, chunk.first_query, chunk.queries, x.value_dim, out, problem.value_width);
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

struct QueryGradient {
  QueryGradient(const LinearProblem& linear_problem, int64_t entry, int64_t head, Arena& arena)
      : problem(linear_problem),
        x(problem.args),
        b(entry),
        key_head(head),
        keys(problem, x.key, arena),
        y(problem, arena),
        values(arena.take<float>(kChunk * problem.value_width)),
        value_columns(arena.take<float>(problem.value_width * kChunk)),
        prefix(arena.take<float>(kChunk * problem.width)),
        pairs(arena.take<float>(kPairFloats)),
        gradient(arena.take<float>(kChunk * problem.width)),
        plain(arena.take<float>(kChunk * problem.width)),
        scratch(arena.take<float>(kChunk * problem.width)),
        zeros(arena.take<float>(problem.width)),
        sum(x.value_dim * problem.width, arena),
        norm(problem.width, arena) {}

  void take_keys(const Chunk& chunk) const;
  void answer(const rf_linear_attention_grads& grads, const Chunk& chunk, int64_t h) const;
  void add_keys(const Chunk& chunk) const;

  const LinearProblem& problem;
  const rf_linear_attention_args& x;
  int64_t b, key_head;
  FeatureRows keys;
  OutputGradient y;
  float* values;         // [kChunk][value_width]
  float* value_columns;  // [value_width][kChunk]
  float* prefix;         // [kChunk][width]: z at each key
  float* pairs;          // [queries][keys]
  float* gradient;       // [kChunk][width]: of R f
  float* plain;          // [kChunk][width]: of f in the denominator
  float* scratch;        // [kChunk][width]
  float* zeros;
  RunningSum sum;   // S^T, [Dv][width]
  RunningSum norm;  // z, [width]
};

void QueryGradient::take_keys(const Chunk& chunk) const {
  load_keys(problem, b, key_head, chunk, keys, values);
  sum_prefixes(norm.sum, keys.under, chunk.keys, problem.width, norm.added, prefix);
  if (!chunk.paired()) return;
  transpose(values, problem.value_width, chunk.keys, problem.value_width, value_columns, kChunk);
}

void QueryGradient::answer(const rf_linear_attention_grads& grads, const Chunk& chunk, int64_t h) const {
  const int64_t width = problem.width;
  y.load(problem, grads, b, h, chunk);
  multiply_into(rows_of(y.scaled, problem.value_width), sum.sum, width, chunk.queries, width, x.value_dim, zeros, 0,
                gradient);
  if (chunk.paired()) {
    multiply_pairs(Triangle::kLower, chunk.queries, y.scaled, problem.value_width, x.value_dim, value_columns, pairs);
    add_pairs(Triangle::kLower, chunk.queries, pairs, keys.rotated, width, gradient);
  }
  const bool separate = FeatureRows::is_plain(problem, x.query);
  if (separate) std::fill_n(plain, chunk.queries * width, 0.0f);
  for (int64_t i = 0; i < chunk.queries; ++i) {
    const float* z = chunk.paired() ? prefix + i * width : norm.sum;
    add_scaled(y.factor[i], z, width, (separate ? plain : gradient) + i * width);
  }
  to_given(problem, x.query, b, x.queries, chunk.first_query, chunk.queries, query_rows(x, b, h),
           separate ? plain : nullptr, gradient, scratch);
  store_rows(x.dtype, gradient, width, chunk.queries, x.features, (b * x.queries + chunk.first_query) * x.heads + h,
             x.heads, grads.q);
}

void QueryGradient::add_keys(const Chunk& chunk) const {
  multiply_into(columns_of(values, problem.value_width), keys.rotated, problem.width, x.value_dim, problem.width,
                chunk.keys, zeros, 0, sum.added);
  sum.add();
  norm.add();
}

void query_gradient(const LinearProblem& problem, const rf_linear_attention_grads& grads, int64_t b, int64_t key_head,
                    void* memory) {
  Arena arena(memory);
  const QueryGradient pass(problem, b, key_head, arena);
  pass.sum.clear();
  pass.norm.clear();
  std::fill_n(pass.zeros, problem.width, 0.0f);
  for (int64_t i = 0; i < problem.plan.count(); ++i) {
    const Chunk chunk = problem.plan.at(i);
    if (chunk.keys > 0) pass.take_keys(chunk);
    for (int64_t j = 0; chunk.queries > 0 && j < problem.group; ++j) {
      pass.answer(grads, chunk, key_head * problem.group + j);
    }
    if (chunk.keys > 0) pass.add_keys(chunk);
  }
}

struct KeyGradient {
  KeyGradient(const LinearProblem& linear_problem, int64_t entry, int64_t head, Arena& arena)
      : problem(linear_problem),
        x(problem.args),
        b(entry),
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
        sum_columns(arena.take<float>(problem.value_width * problem.width)),
        sum(x.features * problem.value_width, arena),
        norm(problem.width, arena) {}

  void begin() const;
  void take_keys(const Chunk& chunk) const;
  void take_queries(const rf_linear_attention_grads& grads, const Chunk& chunk, int64_t h) const;
  void add_suffixes(const Chunk& chunk) const;
  void write_keys(const rf_linear_attention_grads& grads, const Chunk& chunk) const;
  void add_queries() const;

  const LinearProblem& problem;
  const rf_linear_attention_args& x;
  int64_t b, key_head;
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
  float* sum_columns;  // P^T, [value_width][width]
  RunningSum sum;      // P, [F][value_width]
  RunningSum norm;     // c', [width]
};

void KeyGradient::begin() const {
  sum.clear();
  norm.clear();
  std::fill_n(sum_columns, problem.value_width * problem.width, 0.0f);
  std::fill_n(zeros, std::max(problem.width, problem.value_width), 0.0f);
}

// What later chunks give to the keys.
void KeyGradient::take_keys(const Chunk& chunk) const {
  load_keys(problem, b, key_head, chunk, keys, values);
  multiply_into(rows_of(keys.rotated, problem.width), sum.sum, problem.value_width, chunk.keys, problem.value_width,
                x.features, zeros, 0, value_gradient);
  multiply_into(rows_of(values, problem.value_width), sum_columns, problem.width, chunk.keys, problem.width,
                x.value_dim, zeros, 0, gradient);
  for (int64_t i = 0; i < chunk.keys; ++i) std::copy_n(norm.sum, problem.width, suffix + i * problem.width);
}

// What one query head gives to the keys of its chunk and to the sums.
void KeyGradient::take_queries(const rf_linear_attention_grads& grads, const Chunk& chunk, int64_t h) const {
  const int64_t width = problem.width, value_width = problem.value_width;
  load_queries(problem, b, h, chunk, queries);
  y.load(problem, grads, b, h, chunk);
  add_suffixes(chunk);
  multiply_into(columns_of(queries.rotated, width), y.scaled, value_width, x.features, value_width, chunk.queries,
                sum.added, value_width, sum.added);
  if (!chunk.paired()) return;
  transpose(queries.rotated, width, chunk.queries, width, query_columns, kChunk);
  transpose(y.scaled, value_width, chunk.queries, value_width, y_columns, kChunk);
  multiply_pairs(Triangle::kUpper, chunk.keys, keys.rotated, width, x.features, query_columns, pairs);
  add_pairs(Triangle::kUpper, chunk.keys, pairs, y.scaled, value_width, value_gradient);
  multiply_pairs(Triangle::kUpper, chunk.keys, values, value_width, x.value_dim, y_columns, pairs);
  add_pairs(Triangle::kUpper, chunk.keys, pairs, queries.rotated, width, gradient);
}

void KeyGradient::add_suffixes(const Chunk& chunk) const {
  const FloatTag d;
  const int64_t width = problem.width;
  for (int64_t i = 0; i < width; i += kLanes) {
    auto sum_of_rows = hn::Zero(d);
    for (int64_t m = chunk.queries - 1; m >= 0; --m) {
      sum_of_rows = hn::MulAdd(hn::Set(d, y.factor[m]), hn::LoadU(d, queries.under + m * width + i), sum_of_rows);
      if (!chunk.paired()) continue;
      float* to = suffix + m * width + i;
      hn::StoreU(hn::Add(hn::LoadU(d, to), sum_of_rows), d, to);
    }
    hn::StoreU(hn::Add(hn::LoadU(d, norm.added + i), sum_of_rows), d, norm.added + i);
  }
}

void KeyGradient::write_keys(const rf_linear_attention_grads& grads, const Chunk& chunk) const {
  const bool separate = FeatureRows::is_plain(problem, x.key);
  const int64_t row = (b * x.keys + chunk.first_key) * x.key_heads + key_head;
  if (!separate) add_scaled(1, suffix, chunk.keys * problem.width, gradient);
  to_given(problem, x.key, b, x.keys, chunk.first_key, chunk.keys, key_rows(x, b, key_head),
           separate ? suffix : nullptr, gradient, scratch);
  clear_masked(x, b, chunk.first_key, chunk.keys, problem.width, gradient);
  if (grads.k != nullptr) {
    store_rows(x.dtype, gradient, problem.width, chunk.keys, x.features, row, x.key_heads, grads.k);
  }
  if (grads.v != nullptr) {
    store_rows(x.dtype, value_gradient, problem.value_width, chunk.keys, x.value_dim, row, x.key_heads, grads.v);
  }
}

void KeyGradient::add_queries() const {
  sum.add();
  norm.add();
  transpose(sum.sum, problem.value_width, x.features, problem.value_width, sum_columns, problem.width);
}

void key_gradient(const LinearProblem& problem, const rf_linear_attention_grads& grads, int64_t b, int64_t key_head,
                  void* memory) {
  Arena arena(memory);
  const KeyGradient pass(problem, b, key_head, arena);
  pass.begin();
  for (int64_t i = problem.plan.count() - 1; i >= 0; --i) {
    const Chunk chunk = problem.plan.at(i);
    if (chunk.keys > 0) pass.take_keys(chunk);
    if (chunk.queries > 0) {
      std::fill_n(pass.sum.added, pass.sum.count, 0.0f);
      std::fill_n(pass.norm.added, pass.norm.count, 0.0f);
      for (int64_t j = 0; j < problem.group; ++j) pass.take_queries(grads, chunk, key_head * problem.group + j);
    }
    if (chunk.keys > 0) pass.write_keys(grads, chunk);
    if (chunk.queries > 0) pass.add_queries();
  }
}

int64_t query_gradient_bytes(const LinearProblem& problem) {
  Arena arena(nullptr);
  const QueryGradient pass(problem, 0, 0, arena);
  return arena.used();
}

int64_t key_gradient_bytes(const LinearProblem& problem) {
  Arena arena(nullptr);
  const KeyGradient pass(problem, 0, 0, arena);
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

void linear_query_gradient(const LinearProblem& problem, const rf_linear_attention_grads& grads, int64_t b,
                           int64_t key_head, void* space) {
  HWY_DYNAMIC_DISPATCH(query_gradient)(problem, grads, b, key_head, space);
}

int64_t linear_key_gradient_bytes(const LinearProblem& problem) {
  return HWY_DYNAMIC_DISPATCH(key_gradient_bytes)(problem);
}

void linear_key_gradient(const LinearProblem& problem, const rf_linear_attention_grads& grads, int64_t b,
                         int64_t key_head, void* space) {
  HWY_DYNAMIC_DISPATCH(key_gradient)(problem, grads, b, key_head, space);
}

}  // namespace rf::core
#endif
