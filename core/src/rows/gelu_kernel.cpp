// GELU kernels (rf/rows.h has the definition). All forms are t c(t), with c rising from 0 to 1 and c(-t) = 1 - c(t),
// so the smaller of the two is computed, for a = |t|, and the other is one minus it:
//
//   erf   c(-a) = exp(-a^2/2) R(a)       R(a) = erfc(a / sqrt 2) / 2 exp(a^2/2) = u P(2u - 1), u = 1 / (1 + 0.35 a)
//   tanh  c(-a) = e / (1 + e)            e = exp(-2 sqrt(2/pi) (a + 0.044715 a^3))
//   silu  c(-a) = e / (1 + e)            e = exp(-a)
//
// P is a polynomial of degree 8 fitted for the least relative error, 3.2e-8 for a up to 14, after which c(-a) is 0 in
// float32. The slope is c(t) + t c'(t), where c' needs the same exponential.
#include "rows/kernels.h"

#include "common/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rows/gelu_kernel.cpp"
#include "hwy/foreach_target.h"
// Lists the targets, then compiles this file for each one.
#include "common/float_vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// From here on c is 0 or 1; the cubes of smaller numbers are finite.
inline constexpr float kFar = 32, kFarSilu = 128;

// c(t) and t c'(t).
struct Curve {
  FloatVec at, moment;
};

HWY_INLINE FloatVec one_side(FloatVec t, FloatVec tail) {
  const FloatTag d;
  return hn::IfThenElse(hn::Lt(t, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0f), tail));
}

struct ErfForm {
  static HWY_INLINE Curve curve(FloatVec t) {
    const FloatTag d;
    const auto a = hn::Min(hn::Abs(t), hn::Set(d, kFar));
    const auto e = exp2(hn::Mul(hn::Mul(a, a), hn::Set(d, -0.5f * kLog2e)));
    const auto one = hn::Set(d, 1.0f);
    const auto u = hn::Div(one, hn::MulAdd(hn::Set(d, 0.35f), a, one));
    const auto v = hn::Sub(hn::Add(u, u), one);
    auto p = hn::Set(d, -0x1.dd8716p-14f);
    p = hn::MulAdd(p, v, hn::Set(d, 0x1.c0b9ap-13f));
    p = hn::MulAdd(p, v, hn::Set(d, 0x1.69cd1cp-11f));
    p = hn::MulAdd(p, v, hn::Set(d, -0x1.cbe368p-10f));
    p = hn::MulAdd(p, v, hn::Set(d, -0x1.4ecec4p-8f));
    p = hn::MulAdd(p, v, hn::Set(d, 0x1.4f57c4p-7f));
    p = hn::MulAdd(p, v, hn::Set(d, 0x1.2338a6p-4f));
    p = hn::MulAdd(p, v, hn::Set(d, 0x1.5f3932p-3f));
    p = hn::MulAdd(p, v, hn::Set(d, 0x1.035278p-2f));
    const auto tail = hn::Mul(e, hn::Mul(u, p));
    const auto density = hn::Mul(e, hn::Set(d, 0.398942280401432678f));  // 1 / sqrt(2 pi)
    return {one_side(t, tail), hn::Mul(hn::CopySign(a, t), density)};
  }
};

struct TanhForm {
  static HWY_INLINE Curve curve(FloatVec t) {
    const FloatTag d;
    const auto a = hn::Min(hn::Abs(t), hn::Set(d, kFar));
    const auto one = hn::Set(d, 1.0f), cubic = hn::Set(d, 0.044715f), factor = hn::Set(d, 1.59576912160573071f);
    const auto square = hn::Mul(cubic, hn::Mul(a, a));
    const auto z = hn::Mul(factor, hn::MulAdd(square, a, a));
    const auto e = exp2(hn::Mul(z, hn::Set(d, -kLog2e)));
    const auto rest = hn::Div(one, hn::Add(one, e));
    const auto tail = hn::Mul(e, rest);
    const auto slope_z = hn::Mul(factor, hn::MulAdd(hn::Set(d, 3.0f), square, one));
    return {one_side(t, tail), hn::Mul(hn::CopySign(a, t), hn::Mul(hn::Mul(tail, rest), slope_z))};
  }
};

struct SiluForm {
  static HWY_INLINE Curve curve(FloatVec t) {
    const FloatTag d;
    const auto a = hn::Min(hn::Abs(t), hn::Set(d, kFarSilu));
    const auto one = hn::Set(d, 1.0f);
    const auto e = exp2(hn::Mul(a, hn::Set(d, -kLog2e)));
    const auto rest = hn::Div(one, hn::Add(one, e));
    const auto tail = hn::Mul(e, rest);
    return {one_side(t, tail), hn::Mul(hn::CopySign(a, t), hn::Mul(tail, rest))};
  }
};

template <class T, class Form>
void forward(const rf_gelu_args& x, RowRange rows) {
  const auto* bias = static_cast<const float*>(x.bias);
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    const T* from = row_of<T>(x.x, x.x_stride, row);
    T* to = row_of<T>(x.y, x.y_stride, row);
    const T* factor = x.factor == nullptr ? nullptr : row_of<T>(x.factor, x.factor_stride, row);
    for (int64_t i = 0; i < x.columns; i += kLanes) {
      const int64_t left = x.columns - i;
      auto t = load_some(from + i, left);
      if (bias != nullptr) t = hn::Add(t, load_some(bias + i, left));
      t = hn::Mul(t, Form::curve(t).at);
      if (factor != nullptr) t = hn::Mul(t, load_some(factor + i, left));
      store_some(t, to + i, left);
    }
  }
}

template <class T, class Form>
void backward(const rf_gelu_args& x, const rf_gelu_grads& grads, RowRange rows, float* sums) {
  const FloatTag d;
  const auto* bias = static_cast<const float*>(x.bias);
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    const T* from = row_of<T>(x.x, x.x_stride, row);
    const T* dy = row_of<T>(grads.y, grads.y_stride, row);
    T* dx = row_of<T>(grads.x, grads.x_stride, row);
    for (int64_t i = 0; i < x.columns; i += kLanes) {
      const int64_t left = x.columns - i;
      auto t = load_some(from + i, left);
      if (bias != nullptr) t = hn::Add(t, load_some(bias + i, left));
      const Curve c = Form::curve(t);
      const auto slope = hn::IfThenElse(hn::IsNaN(t), t, hn::Add(c.at, c.moment));
      const auto gradient = hn::Mul(load_some(dy + i, left), slope);
      if (dx != nullptr) store_some(gradient, dx + i, left);
      hn::StoreU(hn::Add(hn::LoadU(d, sums + i), gradient), d, sums + i);
    }
  }
}

template <class T>
void forward_of(const rf_gelu_args& x, RowRange rows) {
  if (x.form == RF_GELU_ERF) return forward<T, ErfForm>(x, rows);
  x.form == RF_GELU_TANH ? forward<T, TanhForm>(x, rows) : forward<T, SiluForm>(x, rows);
}

template <class T>
void backward_of(const rf_gelu_args& x, const rf_gelu_grads& grads, RowRange rows, float* sums) {
  if (x.form == RF_GELU_ERF) return backward<T, ErfForm>(x, grads, rows, sums);
  x.form == RF_GELU_TANH ? backward<T, TanhForm>(x, grads, rows, sums) : backward<T, SiluForm>(x, grads, rows, sums);
}

void forward_any(const rf_gelu_args& x, RowRange rows) {
  with_element(x.dtype, [&](auto element) { forward_of<decltype(element)>(x, rows); });
}

void backward_any(const rf_gelu_args& x, const rf_gelu_grads& grads, RowRange rows, float* sums) {
  with_element(x.dtype, [&](auto element) { backward_of<decltype(element)>(x, grads, rows, sums); });
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rf::core {

HWY_EXPORT(forward_any);
HWY_EXPORT(backward_any);

void gelu_rows(const rf_gelu_args& args, RowRange rows) { HWY_DYNAMIC_DISPATCH(forward_any)(args, rows); }

void gelu_backward_rows(const rf_gelu_args& args, const rf_gelu_grads& grads, RowRange rows, float* sums) {
  HWY_DYNAMIC_DISPATCH(backward_any)(args, grads, rows, sums);
}

}  // namespace rf::core
#endif
