// Kernels of softmax and of cross-entropy (rf/rows.h has the definitions). With L = log2(e) and M the largest element:
//
//   softmax         e[c] = exp2((x[c] - M) L),  y = e / sum e       dx = y (dy - sum dy y)
//   cross-entropy   in pieces of a row that stay in the first-level cache from looking for the largest to adding up:
//                     M' = max(M, piece),  sum = sum exp2((M - M') L) + sum_piece exp2((x[c] - M') L)
//                   log_sum = M + log(sum);  d logits = (exp2((x[c] - log_sum) L) - [c = target]) d loss
//
// An M of -infinity is treated as 0 in the subtraction: then every e is 0, or NaN where x is NaN. If a NaN hides the
// largest element, the result is still correct, because the sum is NaN.
#include "rows/kernels.h"

#include <algorithm>
#include <cmath>

#include "common/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rows/softmax_kernel.cpp"
#include "hwy/foreach_target.h"
// Lists the targets, then compiles this file for each one.
#include "common/float_vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// Elements of a row that are looked at twice.
inline constexpr int64_t kPiece = 4096;

template <class T>
HWY_INLINE float largest_of(const T* x, int64_t count) {
  const FloatTag d;
  auto m0 = hn::Set(d, kMinusInfinity), m1 = m0;
  for (int64_t i = 0; i < count; i += 2 * kLanes) {
    m0 = hn::Max(m0, load_some(x + i, count - i, kMinusInfinity));
    if (i + kLanes < count) m1 = hn::Max(m1, load_some(x + i + kLanes, count - i - kLanes, kMinusInfinity));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0, m1)));
}

HWY_INLINE float subtracted(float largest) { return largest == kMinusInfinity ? 0 : largest; }

// exp(x - from).
HWY_INLINE FloatVec exp_from(FloatVec x, FloatVec from) {
  return exp2(hn::Mul(hn::Sub(x, from), hn::Set(FloatTag(), kLog2e)));
}
HWY_INLINE float exp_from(float x, float from) {
  const FloatTag d;
  return hn::GetLane(exp_from(hn::Set(d, x), hn::Set(d, from)));
}

template <class T>
void softmax(const rf_softmax_args& args, RowRange rows, float* space) {
  const FloatTag d;
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    const T* x = row_of<T>(args.x, args.x_stride, row);
    const auto largest = hn::Set(d, subtracted(largest_of(x, args.columns)));
    const float sum = sum_vectors(args.columns, [&](int64_t i) HWY_ATTR {
      const auto e = exp_from(load_some(x + i, args.columns - i, kMinusInfinity), largest);
      hn::StoreU(e, d, space + i);
      return e;
    });
    const auto factor = hn::Set(d, sum == 0 ? 0 : 1 / sum);
    T* y = row_of<T>(args.y, args.y_stride, row);
    for (int64_t i = 0; i < args.columns; i += kLanes) {
      store_some(hn::Mul(hn::LoadU(d, space + i), factor), y + i, args.columns - i);
    }
  }
}

template <class T>
void softmax_backward(const rf_softmax_args& args, const rf_softmax_grads& grads, RowRange rows) {
  const FloatTag d;
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    const T* y = row_of<T>(static_cast<const void*>(args.y), args.y_stride, row);
    const T* dy = row_of<T>(grads.y, grads.y_stride, row);
    T* dx = row_of<T>(grads.x, grads.x_stride, row);
    const float dot = sum_vectors(args.columns, [&](int64_t i) HWY_ATTR {
      return hn::Mul(load_some(y + i, args.columns - i), load_some(dy + i, args.columns - i));
    });
    for (int64_t i = 0; i < args.columns; i += kLanes) {
      const int64_t left = args.columns - i;
      const auto centered = hn::Sub(load_some(dy + i, left), hn::Set(d, dot));
      store_some(hn::Mul(load_some(y + i, left), centered), dx + i, left);
    }
  }
}

template <class T>
HWY_INLINE double log_sum_of(const T* x, int64_t columns) {
  const FloatTag d;
  float largest = kMinusInfinity, sum = 0;
  for (int64_t first = 0; first < columns; first += kPiece) {
    const T* piece = x + first;
    const int64_t count = std::min(kPiece, columns - first);
    const float before = largest;
    largest = std::max(largest, largest_of(piece, count));
    const float from = subtracted(largest);
    if (before != kMinusInfinity) sum *= exp_from(before, from);
    sum += sum_vectors(count, [&](int64_t i) HWY_ATTR {
      return exp_from(load_some(piece + i, count - i, kMinusInfinity), hn::Set(d, from));
    });
  }
  return double{subtracted(largest)} + std::log(double{sum});
}

template <class T>
void cross_entropy(const rf_cross_entropy_args& args, RowRange rows) {
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    const T* x = row_of<T>(args.logits, args.logits_stride, row);
    const double log_sum = log_sum_of(x, args.columns);
    const int64_t target = args.targets[row];
    const bool ignored = target == args.ignore_index;
    args.log_sum[row] = log_sum;
    static_cast<float*>(args.loss)[row] = ignored ? 0 : static_cast<float>(log_sum - double{to_arithmetic(x[target])});
  }
}

template <class T>
void cross_entropy_backward(const rf_cross_entropy_args& args, const rf_cross_entropy_grads& grads, RowRange rows) {
  const FloatTag d;
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    const T* x = row_of<T>(args.logits, args.logits_stride, row);
    T* dx = row_of<T>(grads.logits, grads.logits_stride, row);
    const int64_t target = args.targets[row];
    if (target == args.ignore_index) {
      std::fill_n(dx, args.columns, from_arithmetic<T>(0));
      continue;
    }
    // exp(x - log_sum) = exp(x - rounded) exp(rounded - log_sum)
    const auto rounded = static_cast<float>(args.log_sum[row]);
    const double rest = std::isfinite(rounded) ? std::exp(double{rounded} - args.log_sum[row]) : 1;
    const auto correction = static_cast<float>(rest);
    const float given = static_cast<const float*>(grads.loss)[row * grads.loss_stride];
    const float at_target = (exp_from(to_arithmetic(x[target]), rounded) * correction - 1) * given;
    const auto from = hn::Set(d, rounded), factor = hn::Set(d, given * correction);
    for (int64_t i = 0; i < args.columns; i += kLanes) {
      const int64_t left = args.columns - i;
      store_some(hn::Mul(exp_from(load_some(x + i, left), from), factor), dx + i, left);
    }
    dx[target] = from_arithmetic<T>(at_target);
  }
}

void softmax_any(const rf_softmax_args& args, RowRange rows, void* space) {
  auto* floats = static_cast<float*>(space);
  with_element(args.dtype, [&](auto element) { softmax<decltype(element)>(args, rows, floats); });
}

void softmax_backward_any(const rf_softmax_args& args, const rf_softmax_grads& grads, RowRange rows) {
  with_element(args.dtype, [&](auto element) { softmax_backward<decltype(element)>(args, grads, rows); });
}

void cross_entropy_any(const rf_cross_entropy_args& args, RowRange rows) {
  with_element(args.dtype, [&](auto element) { cross_entropy<decltype(element)>(args, rows); });
}

void cross_entropy_backward_any(const rf_cross_entropy_args& args, const rf_cross_entropy_grads& grads, RowRange rows) {
  with_element(args.dtype, [&](auto element) { cross_entropy_backward<decltype(element)>(args, grads, rows); });
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rf::core {

HWY_EXPORT(softmax_any);
HWY_EXPORT(softmax_backward_any);
HWY_EXPORT(cross_entropy_any);
HWY_EXPORT(cross_entropy_backward_any);

void softmax_rows(const rf_softmax_args& args, RowRange rows, void* space) {
  HWY_DYNAMIC_DISPATCH(softmax_any)(args, rows, space);
}

void softmax_backward_rows(const rf_softmax_args& args, const rf_softmax_grads& grads, RowRange rows) {
  HWY_DYNAMIC_DISPATCH(softmax_backward_any)(args, grads, rows);
}

void cross_entropy_rows(const rf_cross_entropy_args& args, RowRange rows) {
  HWY_DYNAMIC_DISPATCH(cross_entropy_any)(args, rows);
}

void cross_entropy_backward_rows(const rf_cross_entropy_args& args, const rf_cross_entropy_grads& grads,
                                 RowRange rows) {
  HWY_DYNAMIC_DISPATCH(cross_entropy_backward_any)(args, grads, rows);
}

}  // namespace rf::core
#endif
