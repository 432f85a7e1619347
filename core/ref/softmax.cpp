// Softmax and cross-entropy in plain loops (see rows.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/element.h"
#include "common/reference.h"
#include "convert.h"

namespace rf::ref {
namespace {

// exp(x - from) of a row and the sum of it; from: the largest element, or 0 if all are -infinity.
struct Exponentials {
  std::vector<double> values;
  double from = 0, sum = 0;
};

Exponentials exponentials(rf_dtype dtype, const void* data, int64_t first, int64_t columns) {
  Exponentials e;
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t c = 0; c < columns; ++c) largest = std::max(largest, load(dtype, data, first + c));
  if (std::isfinite(largest) || largest > 0) e.from = largest;
  for (int64_t c = 0; c < columns; ++c) {
    e.values.push_back(std::exp(load(dtype, data, first + c) - e.from));
    e.sum += e.values.back();
  }
  return e;
}

}  // namespace

void softmax(const rf_softmax_args& x) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const Exponentials e = exponentials(x.dtype, x.x, r * x.x_stride, x.columns);
    for (int64_t c = 0; c < x.columns; ++c) {
      store(x.dtype, x.y, r * x.y_stride + c, e.sum == 0 ? 0 : e.values[static_cast<size_t>(c)] / e.sum);
    }
  }
}

void softmax_backward(const rf_softmax_args& x, const rf_softmax_grads& grads) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const auto y = [&](int64_t c) { return load(x.dtype, x.y, r * x.y_stride + c); };
    const auto dy = [&](int64_t c) { return load(x.dtype, grads.y, r * grads.y_stride + c); };
    double dot = 0;
    for (int64_t c = 0; c < x.columns; ++c) dot += y(c) * dy(c);
    for (int64_t c = 0; c < x.columns; ++c) store(x.dtype, grads.x, r * grads.x_stride + c, y(c) * (dy(c) - dot));
  }
}

void cross_entropy(const rf_cross_entropy_args& x) {
  const rf_dtype number = core::parameter_type(x.dtype);
  for (int64_t r = 0; r < x.rows; ++r) {
    const Exponentials e = exponentials(x.dtype, x.logits, r * x.logits_stride, x.columns);
    const double log_sum = e.from + std::log(e.sum);
    const int64_t target = x.targets[r];
    const bool ignored = target == x.ignore_index;
    x.log_sum[r] = log_sum;
    store(number, x.loss, r, ignored ? 0 : log_sum - load(x.dtype, x.logits, r * x.logits_stride + target));
  }
}

void cross_entropy_backward(const rf_cross_entropy_args& x, const rf_cross_entropy_grads& grads) {
  const rf_dtype number = core::parameter_type(x.dtype);
  for (int64_t r = 0; r < x.rows; ++r) {
    const bool ignored = x.targets[r] == x.ignore_index;
    const double log_sum = x.log_sum[r], given = load(number, grads.loss, r * grads.loss_stride);
    for (int64_t c = 0; c < x.columns; ++c) {
      const double p = std::exp(load(x.dtype, x.logits, r * x.logits_stride + c) - log_sum);
      const double gradient = ignored ? 0 : (p - (c == x.targets[r] ? 1 : 0)) * given;
      store(x.dtype, grads.logits, r * grads.logits_stride + c, gradient);
    }
  }
}

}  // namespace rf::ref
