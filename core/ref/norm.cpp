// Norms in plain loops (see rows.h).
#include <cmath>
#include <vector>

#include "common/element.h"
#include "common/reference.h"
#include "convert.h"

namespace rf::ref {
namespace {

using Numbers = std::vector<double>;

// dropout of a row: `row` of [rows, columns], as in rf_dropout.
void drop_row(const rf_norm_args& x, int64_t row, Numbers& values) {
  const auto threshold = static_cast<uint32_t>(std::lround(65536 * x.dropout));
  for (int64_t c = 0; c < x.columns; ++c) {
    double& value = values[static_cast<size_t>(c)];
    value = keeps(row * x.columns + c, threshold, x.seed, x.stream) ? value * (65536.0 / (65536.0 - threshold)) : 0;
  }
}

// A row as the backward needs it: h = (s - m) r and r.
struct NormalRow {
  Numbers h;
  double r;
};

// written_sum: x.sum, or nullptr.
NormalRow normal_row(const rf_norm_args& x, int64_t row, void* written_sum = nullptr) {
  const auto n = static_cast<double>(x.columns);
  const rf_dtype parameter = core::parameter_type(x.dtype);
  Numbers s(static_cast<size_t>(x.columns));
  for (int64_t c = 0; c < x.columns; ++c) {
    const double bias = x.bias == nullptr ? 0 : load(parameter, x.bias, c);
    s[static_cast<size_t>(c)] = load(x.dtype, x.x, row * x.x_stride + c) + bias;
  }
  drop_row(x, row, s);
  double sum = 0, squares = 0;
  for (int64_t c = 0; c < x.columns; ++c) {
    double& value = s[static_cast<size_t>(c)];
    if (x.residual != nullptr) value += load(core::stream_type(x), x.residual, row * x.residual_stride + c);
    if (written_sum != nullptr) store(core::stream_type(x), written_sum, row * x.sum_stride + c, value);
    sum += value;
  }
  const double mean = x.kind == RF_NORM_LAYER ? sum / n : 0;
  for (double& value : s) {
    value -= mean;
    squares += value * value;
  }
  const double r = 1 / std::sqrt(squares / n + x.eps);
  for (double& value : s) value *= r;
  return {s, r};
}

}  // namespace

void norm(const rf_norm_args& x) {
  const rf_dtype parameter = core::parameter_type(x.dtype);
  for (int64_t row = 0; row < x.rows; ++row) {
    const NormalRow normal = normal_row(x, row, x.sum);
    for (int64_t c = 0; c < x.columns; ++c) {
      const double gamma = x.gamma == nullptr ? 1 : load(parameter, x.gamma, c);
      const double beta = x.beta == nullptr ? 0 : load(parameter, x.beta, c);
      store(core::stream_type(x), x.y, row * x.y_stride + c, normal.h[static_cast<size_t>(c)] * gamma + beta);
    }
  }
}

void norm_backward(const rf_norm_args& x, const rf_norm_grads& grads) {
  const rf_dtype parameter = core::parameter_type(x.dtype);
  const auto columns = static_cast<size_t>(x.columns);
  const auto n = static_cast<double>(x.columns);
  Numbers bias_sum(columns), gamma_sum(columns), beta_sum(columns), ds(columns);
  for (int64_t row = 0; row < x.rows; ++row) {
    const auto [h, r] = normal_row(x, row);
    double mean_g = 0, mean_gh = 0;
    for (size_t c = 0; c < columns; ++c) {
      const auto column = static_cast<int64_t>(c);
      const double dy = load(core::stream_type(x), grads.y, row * grads.y_stride + column);
      ds[c] = dy * (x.gamma == nullptr ? 1 : load(parameter, x.gamma, column));
      gamma_sum[c] += dy * h[c];
      beta_sum[c] += dy;
      mean_g += x.kind == RF_NORM_LAYER ? ds[c] / n : 0;
      mean_gh += ds[c] * h[c] / n;
    }
    for (size_t c = 0; c < columns; ++c) {
      ds[c] = r * (ds[c] - mean_g - h[c] * mean_gh);
      if (grads.residual == nullptr) continue;
      store(core::stream_type(x), grads.residual, row * grads.residual_stride + static_cast<int64_t>(c), ds[c]);
    }
    drop_row(x, row, ds);
    for (size_t c = 0; c < columns; ++c) {
      bias_sum[c] += ds[c];
      if (grads.x != nullptr) store(x.dtype, grads.x, row * grads.x_stride + static_cast<int64_t>(c), ds[c]);
    }
  }
  for (size_t c = 0; c < columns; ++c) {
    const auto column = static_cast<int64_t>(c);
    if (grads.bias != nullptr) store(parameter, grads.bias, column, bias_sum[c]);
    if (grads.gamma != nullptr) store(parameter, grads.gamma, column, gamma_sum[c]);
    if (grads.beta != nullptr) store(parameter, grads.beta, column, beta_sum[c]);
  }
}

}  // namespace rf::ref
