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

// The products of a head's query with a key, summed to one vector.
template <class T>
HWY_INLINE FloatVec products(const T* q, const T* key, int64_t head_dim) {
  const FloatTag d;
  auto sum = hn::Zero(d);
  for (int64_t c = 0; c < head_dim; c += kLanes)
    sum = hn::MulAdd(load_some(q + c, head_dim - c), load_some(key + c, head_dim - c), sum);
  return sum;
}

inline constexpr int64_t kKeysAtOnce = 4;

// to[i] = factor times the sum of the lanes of x[i], all in the same order.
HWY_INLINE void sum_lanes(const FloatVec (&x)[kKeysAtOnce], float factor, float* to) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < kKeysAtOnce; ++i) to[i] = factor * hn::GetLane(x[i]);
#else
  const FloatTag d;
  const hn::Repartition<double, FloatTag> pairs;
  const hn::FixedTag<float, 4> block;
  //   x0: a b c d, x1: e f g h  ->  a+c e+g b+d f+h      in each block
  const auto fold = [&](FloatVec a, FloatVec b) HWY_ATTR {
    return hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  };
  const auto low = fold(x[0], x[1]), high = fold(x[2], x[3]);
  const auto sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, low, high)),
                            hn::BitCast(d, hn::InterleaveUpper(pairs, low, high)));
  alignas(64) float lanes[kLanes];
  hn::Store(sums, d, lanes);
  auto sum = hn::Load(block, lanes);
  for (int64_t l = 4; l < kLanes; l += 4) sum = hn::Add(sum, hn::Load(block, lanes + l));
  hn::StoreU(hn::Mul(sum, hn::Set(block, factor)), block, to);
#endif
}

// scores[i] = scale q . k_i, some at a time, so that there is room for more than `count`; returns the largest.
template <class T>
HWY_INLINE float listed_scores(const rf_listed_attention_args& x, const T* q, const T* k, const int64_t* rows,
                               int64_t count, float* scores) {
  const FloatTag d;
  const auto factor = static_cast<float>(x.scale);
  for (int64_t i = 0; i < count; i += kKeysAtOnce) {
    FloatVec sums[kKeysAtOnce];
    HWY_UNROLL(4)
    for (int64_t j = 0; j < kKeysAtOnce; ++j)
      sums[j] = products(q, k + rows[std::min(i + j, count - 1)] * x.kv_stride, x.head_dim);
    sum_lanes(sums, factor, scores + i);
  }
  auto largest = hn::Set(d, kMinusInfinity);
  for (int64_t i = 0; i < count; i += kLanes)
    largest = hn::Max(largest, load_some(scores + i, count - i, kMinusInfinity));
  return hn::GetLane(hn::MaxOfLanes(d, largest));
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
constexpr int64_t kMaxLanes = 64;               // of a vector of any target
constexpr int64_t kParallelProducts = 1 << 15;  // below them one thread is as fast

// Returns the number of keys of all queries, and the most of one.
std::pair<int64_t, int64_t> check_listed(const rf_listed_attention_args& x) {
  check_dtype(kListedWhere, x.dtype);
  check_at_least(kListedWhere, 0, {{x.queries, "queries"}, {x.keys, "keys"}, {x.heads, "heads"}, {x.listed, "listed"}});
  check_at_least(kListedWhere, 1, {{x.head_dim, "head_dim"}});
  check_size(kListedWhere, {x.heads, x.head_dim}, "[heads, head_dim]");
  const int64_t width = x.heads * x.head_dim, bytes = element_bytes(x.dtype);
  const auto check_array = [&](const void* data, int64_t rows, int64_t stride, const char* name, const char* of_rows) {
    require(stride >= width, kListedWhere, of_rows, " must be at least heads * head_dim = ", width, ", got ", stride);
    check_size(kListedWhere, {rows, stride}, name);
    check_pointer(kListedWhere, data, rows * width, bytes, name);
  };
  check_array(x.q, x.queries, x.q_stride, "q", "q_stride");
  check_array(x.k, x.keys, x.kv_stride, "k", "kv_stride");
  check_array(x.v, x.keys, x.kv_stride, "v", "kv_stride");
  check_array(x.out, x.queries, x.out_stride, "out", "out_stride");
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
