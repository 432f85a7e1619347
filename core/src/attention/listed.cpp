// Attention of queries with listed keys (rf/listed_attention.h): one query at a time, whose scores of all heads stay in
// the first-level cache. A weight is exp2((score - largest) L), L = log2(e).
#include "rf/listed_attention.h"

#include <algorithm>
#include <cmath>

#include "common/arguments.h"
#include "common/element.h"
#include "common/parallel_tasks.h"
#include "common/reference.h"
#include "common/simd_targets.h"
#include "common/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/listed.cpp"
#include "hwy/foreach_target.h"
// Lists the targets, then compiles this file for each one.
#include "common/float_vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// scores[i] = q . k_i; returns the largest.
template <class T>
HWY_INLINE float listed_scores(const rf_listed_attention_args& x, const T* q, const T* k, const int64_t* rows,
                               int64_t count, float* scores) {
  const auto factor = static_cast<float>(x.scale);
  float largest = kMinusInfinity;
  for (int64_t i = 0; i < count; ++i) {
    const T* key = k + rows[i] * x.kv_stride;
    scores[i] = factor * sum_vectors(x.head_dim, [&](int64_t c) HWY_ATTR {
      return hn::Mul(load_some(q + c, x.head_dim - c), load_some(key + c, x.head_dim - c));
    });
    largest = std::max(largest, scores[i]);
  }
  return largest;
}

// out = sum_i weights[i] v_i / sum
template <class T>
HWY_INLINE void listed_values(const rf_listed_attention_args& x, const T* v, const int64_t* rows, int64_t count,
                              const float* weights, float sum, T* out) {
  const FloatTag d;
  const auto factor = hn::Set(d, 1 / sum);
  for (int64_t c = 0; c < x.head_dim; c += 2 * kLanes) {
    const int64_t left = x.head_dim - c, right = left - kLanes;
    auto first = hn::Zero(d), second = first;
    for (int64_t i = 0; i < count; ++i) {
      const T* value = v + rows[i] * x.kv_stride + c;
      const auto weight = hn::Set(d, weights[i]);
      first = hn::MulAdd(weight, load_some(value, left), first);
      if (right > 0) second = hn::MulAdd(weight, load_some(value + kLanes, right), second);
    }
    store_some(hn::Mul(first, factor), out + c, left);
    if (right > 0) store_some(hn::Mul(second, factor), out + c + kLanes, right);
  }
}

template <class T>
void listed_query(const rf_listed_attention_args& x, int64_t query, float* scores) {
  const FloatTag d;
  const int64_t* rows = x.rows + x.begins[query];
  const int64_t count = x.counts[query];
  for (int64_t h = 0; h < x.heads; ++h) {
    const int64_t column = h * x.head_dim;
    T* out = static_cast<T*>(x.out) + query * x.out_stride + column;
    if (count == 0) {
      std::fill_n(out, x.head_dim, from_arithmetic<T>(0));
      continue;
    }
    const T* q = static_cast<const T*>(x.q) + query * x.q_stride + column;
    const float largest = listed_scores(x, q, static_cast<const T*>(x.k) + column, rows, count, scores);
    const auto from = hn::Set(d, largest == kMinusInfinity ? 0 : largest), log2e = hn::Set(d, kLog2e);
    const float sum = sum_vectors(count, [&](int64_t i) HWY_ATTR {
      const auto weight = exp2(hn::Mul(hn::Sub(load_some(scores + i, count - i, kMinusInfinity), from), log2e));
      hn::StoreU(weight, d, scores + i);
      return weight;
    });
    listed_values(x, static_cast<const T*>(x.v) + column, rows, count, scores, sum, out);
  }
}

void listed_query_any(const rf_listed_attention_args& x, int64_t query, float* scores) {
  with_element(x.dtype, [&](auto element) { listed_query<decltype(element)>(x, query, scores); });
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rf::core {

HWY_EXPORT(listed_query_any);

namespace {

constexpr const char* kListedWhere = "listed_attention";
constexpr int64_t kMaxLanes = 64;                // of a vector of any target
constexpr int64_t kParallelProducts = 1 << 15;  // below them one thread is as fast

// Returns the number of keys of all queries, and the most of one.
std::pair<int64_t, int64_t> check_listed(const rf_listed_attention_args& x) {
  check_dtype(kListedWhere, x.dtype);
  check_at_least(kListedWhere, 0,
                 {{x.queries, "queries"}, {x.keys, "keys"}, {x.heads, "heads"}, {x.listed, "listed"}});
  check_at_least(kListedWhere, 1, {{x.head_dim, "head_dim"}});
  check_size(kListedWhere, {x.heads, x.head_dim}, "[heads, head_dim]");
  const int64_t width = x.heads * x.head_dim, bytes = element_bytes(x.dtype);
  for (const auto& [data, rows, stride, name] : {std::tuple{x.q, x.queries, x.q_stride, "q"},
                                                 {x.k, x.keys, x.kv_stride, "k"},
                                                 {x.v, x.keys, x.kv_stride, "v"},
                                                 {static_cast<const void*>(x.out), x.queries, x.out_stride, "out"}}) {
    require(stride >= width, kListedWhere, name, "_stride must be at least heads * head_dim = ", width, ", got ",
            stride);
    check_size(kListedWhere, {rows, stride}, name);
    check_pointer(kListedWhere, data, rows * width, bytes, name);
  }
  require(std::isfinite(x.scale), kListedWhere, "scale must be finite, got ", x.scale);
  check_pointer(kListedWhere, x.rows, x.listed, sizeof(int64_t), "rows");
  check_pointer(kListedWhere, x.begins, x.queries, sizeof(int64_t), "begins");
  check_pointer(kListedWhere, x.counts, x.queries, sizeof(int64_t), "counts");
  for (int64_t i = 0; i < x.listed; ++i) {
    require(x.rows[i] >= 0 && x.rows[i] < x.keys, kListedWhere, "rows must be in 0..", x.keys - 1, ", got ", x.rows[i],
            " at ", i);
  }
  int64_t all = 0, most = 0;
  for (int64_t t = 0; t < x.queries; ++t) {
    const int64_t begin = x.begins[t], count = x.counts[t];
    require(begin >= 0 && count >= 0 && begin <= x.listed && count <= x.listed - begin, kListedWhere,
            "keys of a query must be among the ", x.listed, " listed, got ", count, " from ", begin, " for query ", t);
    all += count;
    most = std::max(most, count);
  }
  return {all, most};
}

}  // namespace
}  // namespace rf::core

rf_status rf_listed_attention(const rf_listed_attention_args* given) {
  using namespace rf::core;
  return with_arguments(kListedWhere, given, [](const rf_listed_attention_args& x) {
    const auto [all, most] = check_listed(x);
    if (x.dtype == RF_F64 || use_reference()) return rf::ref::listed_attention(x);
    const int64_t bytes = (most + kMaxLanes) * static_cast<int64_t>(sizeof(float));
    const bool parallel = all * x.heads * x.head_dim > kParallelProducts;
    parallel_tasks<Schedule::kStatic>({x.queries, parallel, bytes}, [&](int64_t query, void* space) {
      HWY_DYNAMIC_DISPATCH(listed_query_any)(x, query, static_cast<float*>(space));
    });
  });
}
#endif
