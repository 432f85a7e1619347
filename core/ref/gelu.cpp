// GELU in plain loops (see rows.h), by erfc and by the logistic function, which stay accurate in the tails.
#include <cmath>
#include <numbers>
#include <vector>

#include "common/element.h"
#include "common/reference.h"
#include "convert.h"

namespace rf::ref {
namespace {

// c(t) of gelu(t) = t c(t), and c'(t).
struct Curve {
  double value, slope;
};

Curve curve(rf_gelu_form form, double t) {
  if (form == RF_GELU_ERF) {
    return {std::erfc(-t / std::numbers::sqrt2) / 2,
            std::exp(-t * t / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2};
  }
  if (form == RF_GELU_SILU) {
    const double value = 1 / (1 + std::exp(-t));
    return {value, value / (1 + std::exp(t))};
  }
  // (1 + tanh z) / 2 = 1 / (1 + exp(-2 z))
  const double twice = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  const double z = twice * (t + 0.044715 * t * t * t);
  const double value = 1 / (1 + std::exp(-z)), rest = 1 / (1 + std::exp(z));
  return {value, value * rest * twice * (1 + 3 * 0.044715 * t * t)};
}

double argument(const rf_gelu_args& x, int64_t row, int64_t column) {
  const double bias = x.bias == nullptr ? 0 : load(core::parameter_type(x.dtype), x.bias, column);
  return load(x.dtype, x.x, row * x.x_stride + column) + bias;
}

}  // namespace

void gelu(const rf_gelu_args& x) {
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.columns; ++c) {
      const double t = argument(x, r, c);
      const double factor = x.factor == nullptr ? 1 : load(x.dtype, x.factor, r * x.factor_stride + c);
      store(x.dtype, x.y, r * x.y_stride + c, t * curve(x.form, t).value * factor);
    }
  }
}

void gelu_backward(const rf_gelu_args& x, const rf_gelu_grads& grads) {
  std::vector<double> bias(static_cast<size_t>(x.columns));
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.columns; ++c) {
      const double t = argument(x, r, c);
      const Curve at = curve(x.form, t);
      const double gradient = load(x.dtype, grads.y, r * grads.y_stride + c) * (at.value + t * at.slope);
      if (grads.x != nullptr) store(x.dtype, grads.x, r * grads.x_stride + c, gradient);
      bias[static_cast<size_t>(c)] += gradient;
    }
  }
  if (grads.bias == nullptr) return;
  for (int64_t c = 0; c < x.columns; ++c)
    store(core::parameter_type(x.dtype), grads.bias, c, bias[static_cast<size_t>(c)]);
}

}  // namespace rf::ref
