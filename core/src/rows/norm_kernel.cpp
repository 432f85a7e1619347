// Norm kernels (rf/rows.h has the definition): a row goes through work space as floats, so the element types of x and
// of the stream matter only for reading and writing a row. Per row, with n columns in the lanes:
//
//   forward   s = residual + dropout(x + bias)       one pass over memory
//             m = sum(s) / n, v = sum((s - m)^2) / n   two passes in the cache: no difference of squares
//             y = (s - m) r gamma + beta,   r = 1 / sqrt(v + eps)
//   backward  h = (s - m) r, g = dy gamma
//             ds = r (g - mean(g) - h mean(g h))       mean(g) is absent in the RMS norm
//             dx = dropout(ds),  dresidual = ds,  dbias = sum dx,  dgamma = sum dy h,  dbeta = sum dy
//
// Past the last column a row of work space holds zeros.
#include "rows/kernels.h"

#include <cmath>

#include "common/reference.h"
#include "common/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rows/norm_kernel.cpp"
#include "hwy/foreach_target.h"
// Lists the targets, then compiles this file for each one.
#include "common/float_vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// The elements of a row that dropout keeps.
class RowDropout {
 public:
  RowDropout(const rf_norm_args& x, uint16_t* numbers)
      : columns_(x.columns),
        seed_(x.seed),
        stream_(x.stream),
        threshold_(static_cast<int32_t>(std::lround(65536 * x.dropout))),
        scale_(static_cast<float>(65536.0 / (65536.0 - threshold_))),
        numbers_(numbers) {}

  void draw(int64_t row) {
    if (threshold_ == 0) return;
    const int64_t first = row * columns_, skipped = first % kDropoutBlock;
    draw_numbers(first / kDropoutBlock, skipped + columns_, seed_, stream_, numbers_);
    row_ = numbers_ + skipped;
  }

  HWY_INLINE FloatVec apply(FloatVec value, int64_t column) const {
    if (threshold_ == 0) return value;
    const FloatTag d;
    const hn::RebindToSigned<FloatTag> di;
    const hn::Rebind<uint16_t, FloatTag> d16;
    const auto number = hn::PromoteTo(di, hn::LoadU(d16, row_ + column));
    const auto kept = hn::Gt(number, hn::Set(di, threshold_ - 1));
    return hn::IfThenElseZero(hn::RebindMask(d, kept), hn::Mul(value, hn::Set(d, scale_)));
  }

 private:
  int64_t columns_;
  uint64_t seed_, stream_;
  int32_t threshold_;
  float scale_;
  uint16_t* numbers_;
  const uint16_t* row_ = nullptr;
};

struct NormSpace {
  float *s, *g;
  uint16_t* numbers;
  NormSpace(void* space, int64_t columns)
      : s(static_cast<float*>(space)),
        g(s + padded(columns)),
        numbers(reinterpret_cast<uint16_t*>(g + padded(columns))) {}
};

// s of one row.
template <class T, class Stream>
HWY_INLINE void read_row(const rf_norm_args& x, int64_t row, const RowDropout& dropout, float* s) {
  const FloatTag d;
  const T* from = row_of<T>(x.x, x.x_stride, row);
  const auto* residual = row_of<Stream>(x.residual, x.residual_stride, row);
  const auto* bias = static_cast<const float*>(x.bias);
  for (int64_t i = 0; i < x.columns; i += kLanes) {
    const int64_t left = x.columns - i;
    auto value = load_some(from + i, left);
    if (bias != nullptr) value = hn::Add(value, load_some(bias + i, left));
    value = dropout.apply(value, i);
    if (residual != nullptr) value = hn::Add(value, load_some(residual + i, left));
    hn::StoreU(value, d, s + i);
  }
}

// s - m in place of s; returns 1 / sqrt(v + eps).
HWY_INLINE float center_row(const rf_norm_args& x, float* s) {
  const FloatTag d;
  const int64_t n = x.columns;
  if (x.kind == RF_NORM_LAYER) {
    const float sum = sum_vectors(n, [&](int64_t i) HWY_ATTR { return hn::LoadU(d, s + i); });
    const auto mean = hn::Set(d, sum / static_cast<float>(n));
    for (int64_t i = 0; i < n; i += kLanes) {
      hn::StoreU(first_lanes(hn::Sub(hn::LoadU(d, s + i), mean), n - i), d, s + i);
    }
  }
  const float squares = sum_vectors(n, [&](int64_t i) HWY_ATTR {
    const auto value = hn::LoadU(d, s + i);
    return hn::Mul(value, value);
  });
  return 1 / std::sqrt(squares / static_cast<float>(n) + static_cast<float>(x.eps));
}

template <class T, class Stream>
void forward(const rf_norm_args& x, RowRange rows, void* memory) {
  const FloatTag d;
  const NormSpace space(memory, x.columns);
  RowDropout dropout(x, space.numbers);
  const auto* gamma = static_cast<const float*>(x.gamma);
  const auto* beta = static_cast<const float*>(x.beta);
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    dropout.draw(row);
    read_row<T, Stream>(x, row, dropout, space.s);
    if (auto* sum = row_of<Stream>(x.sum, x.sum_stride, row)) {
      for (int64_t i = 0; i < x.columns; i += kLanes) store_some(hn::LoadU(d, space.s + i), sum + i, x.columns - i);
    }
    const auto factor = hn::Set(d, center_row(x, space.s));
    auto* to = row_of<Stream>(x.y, x.y_stride, row);
    for (int64_t i = 0; i < x.columns; i += kLanes) {
      const int64_t left = x.columns - i;
      auto value = hn::Mul(hn::LoadU(d, space.s + i), factor);
      if (gamma != nullptr) value = hn::Mul(value, load_some(gamma + i, left));
      if (beta != nullptr) value = hn::Add(value, load_some(beta + i, left));
      store_some(value, to + i, left);
    }
  }
}

HWY_INLINE void add_to(FloatVec value, float* sum) {
  const FloatTag d;
  hn::StoreU(hn::Add(hn::LoadU(d, sum), value), d, sum);
}

// The means of the backward; leaves h in s and g in space, and adds to the sums of gamma and beta.
struct GradientMeans {
  float g = 0, gh = 0;
};
template <class Stream>
HWY_INLINE GradientMeans project_row(const rf_norm_args& x, const Stream* dy, float factor, const NormSpace& space,
                                     float* gamma_sum, float* beta_sum) {
  const FloatTag d;
  const auto r = hn::Set(d, factor);
  const auto* gamma = static_cast<const float*>(x.gamma);
  auto sum_g = hn::Zero(d);
  const float sum_gh = sum_vectors(x.columns, [&](int64_t i) HWY_ATTR {
    const int64_t left = x.columns - i;
    const auto h = hn::Mul(hn::LoadU(d, space.s + i), r);
    const auto given = load_some(dy + i, left);
    const auto g = gamma == nullptr ? given : hn::Mul(given, load_some(gamma + i, left));
    add_to(hn::Mul(given, h), gamma_sum + i);
    add_to(given, beta_sum + i);
    hn::StoreU(h, d, space.s + i);
    hn::StoreU(g, d, space.g + i);
    sum_g = hn::Add(sum_g, g);
    return hn::Mul(g, h);
  });
  const auto n = static_cast<float>(x.columns);
  const bool centered = x.kind == RF_NORM_LAYER;
  return {centered ? hn::GetLane(hn::SumOfLanes(d, sum_g)) / n : 0, sum_gh / n};
}

template <class T, class Stream>
void backward(const rf_norm_args& x, const rf_norm_grads& grads, RowRange rows, void* memory, float* sums) {
  const FloatTag d;
  const NormSpace space(memory, x.columns);
  RowDropout dropout(x, space.numbers);
  float* bias_sum = sums;
  float* gamma_sum = sums + padded(x.columns);
  float* beta_sum = gamma_sum + padded(x.columns);
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    dropout.draw(row);
    read_row<T, Stream>(x, row, dropout, space.s);
    const float factor = center_row(x, space.s);
    const GradientMeans means =
        project_row(x, row_of<Stream>(grads.y, grads.y_stride, row), factor, space, gamma_sum, beta_sum);
    const auto r = hn::Set(d, factor), mean_g = hn::Set(d, means.g), mean_gh = hn::Set(d, means.gh);
    T* dx = row_of<T>(grads.x, grads.x_stride, row);
    auto* residual = row_of<Stream>(grads.residual, grads.residual_stride, row);
    for (int64_t i = 0; i < x.columns; i += kLanes) {
      const int64_t left = x.columns - i;
      const auto h = hn::LoadU(d, space.s + i), g = hn::LoadU(d, space.g + i);
      const auto ds = hn::Mul(r, hn::NegMulAdd(h, mean_gh, hn::Sub(g, mean_g)));
      const auto dropped = dropout.apply(ds, i);
      if (residual != nullptr) store_some(ds, residual + i, left);
      if (dx != nullptr) store_some(dropped, dx + i, left);
      add_to(dropped, bias_sum + i);
    }
  }
}

// Calls action with an element of x and one of the stream.
template <class Action>
void with_elements(const rf_norm_args& x, const Action& action) {
  with_element(x.dtype,
               [&](auto element) { stream_type(x) != x.dtype ? action(element, float{}) : action(element, element); });
}

void forward_any(const rf_norm_args& x, RowRange rows, void* space) {
  with_elements(x, [&](auto element, auto stream) { forward<decltype(element), decltype(stream)>(x, rows, space); });
}

void backward_any(const rf_norm_args& x, const rf_norm_grads& grads, RowRange rows, void* space, float* sums) {
  with_elements(x, [&](auto element, auto stream) {
    backward<decltype(element), decltype(stream)>(x, grads, rows, space, sums);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rf::core {

HWY_EXPORT(forward_any);
HWY_EXPORT(backward_any);

int64_t norm_space_bytes(int64_t columns) {
  // Numbers are drawn from a block's first element on and in whole runs.
  return 2 * padded(columns) * int64_t{sizeof(float)} +
         (columns + kDropoutBlock + kMaxDrawnAtOnce) * int64_t{sizeof(uint16_t)};
}

void norm_rows(const rf_norm_args& args, RowRange rows, void* space) {
  HWY_DYNAMIC_DISPATCH(forward_any)(args, rows, space);
}

void norm_backward_rows(const rf_norm_args& args, const rf_norm_grads& grads, RowRange rows, void* space, float* sums) {
  HWY_DYNAMIC_DISPATCH(backward_any)(args, grads, rows, space, sums);
}

}  // namespace rf::core
#endif
