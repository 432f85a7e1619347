// The linear layer in plain loops (see the header).
#include "common/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/element.h"
#include "convert.h"
#include "linear/gemm_blocks.h"
#include "linear/gemm_int8.h"

namespace rf::ref {
namespace {

double gelu_of(rf_gelu_form form, double sum) {
  rf_gelu_args args = {};
  args.dtype = RF_F64;
  args.form = form;
  args.rows = args.columns = 1;
  args.x = args.y = &sum;
  gelu(args);
  return sum;
}

double activated(rf_linear_activation activation, double sum) {
  if (activation == RF_LINEAR_NONE) return sum;
  return gelu_of(activation == RF_LINEAR_GELU_ERF ? RF_GELU_ERF : RF_GELU_TANH, sum);
}

// A row of x as integers times a scale.
struct WholeRow {
  std::vector<int64_t> values;
  float scale;
};

WholeRow whole_row(const rf_linear_args& args, const float* factors, int64_t row) {
  std::vector<float> x(static_cast<size_t>(args.in));
  float least = 0, most = 0;
  bool finite = true;
  for (int64_t i = 0; i < args.in; ++i) {
    x[i] = static_cast<float>(load(args.dtype, args.x, row * args.x_stride + i));
    if (factors != nullptr) x[i] *= factors[i];
    finite = finite && std::isfinite(x[i]);
    least = std::min(least, x[i]);
    most = std::max(most, x[i]);
  }
  WholeRow whole{std::vector<int64_t>(x.size()), std::numeric_limits<float>::quiet_NaN()};
  if (!finite) return whole;
  whole.scale = std::max(most / 255 - least / 255, 0x1p-126f);
  const float inverse = 1 / whole.scale;
  const auto nearest = [](float value) { return static_cast<int64_t>(std::nearbyint(static_cast<double>(value))); };
  const int64_t zero = nearest(-least * inverse);
  for (size_t i = 0; i < x.size(); ++i) {
    whole.values[i] = std::min<int64_t>(nearest(x[i] * inverse) + zero, 255) - zero;
  }
  return whole;
}

}  // namespace

void linear_int8(const rf_linear_args& args, const core::Int8Weight& weight) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const WholeRow x = whole_row(args, weight.factors.get(), r);
    for (int64_t j = 0; j < args.out; ++j) {
      int64_t sum = 0;
      for (int64_t i = 0; i < args.in; ++i) sum += x.values[i] * weight.at(j, i);
      const double scaled = static_cast<double>(sum) * static_cast<double>(weight.scales[j]) * x.scale;
      const double bias = args.bias == nullptr ? 0 : load(RF_F32, args.bias, j);
      store(args.dtype, args.y, r * args.y_stride + j, activated(args.activation, scaled + bias));
    }
  }
}

namespace {

// weight(j, i): an element.
template <class Weight>
void linear_by(const rf_linear_args& args, const Weight& weight) {
  constexpr int64_t kGates = 32;
  std::vector<double> sums(static_cast<size_t>(args.out));
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t j = 0; j < args.out; ++j) {
      double& sum = sums[j] = args.bias == nullptr ? 0 : load(core::parameter_type(args.dtype), args.bias, j);
      for (int64_t i = 0; i < args.in; ++i) sum += load(args.dtype, args.x, r * args.x_stride + i) * weight(j, i);
    }
    for (int64_t j = 0; args.gate == 0 && j < args.out; ++j)
      store(args.dtype, args.y, r * args.y_stride + j, activated(args.activation, sums[j]));
    for (int64_t j = 0; args.gate != 0 && j < args.out / 2; ++j) {
      const double* gate = &sums[j / kGates * 2 * kGates + j % kGates];
      store(args.dtype, args.y, r * args.y_stride + j, gelu_of(args.gate, gate[0]) * gate[kGates]);
    }
  }
}

}  // namespace

void linear(const rf_linear_args& args) {
  linear_by(args, [&](int64_t j, int64_t i) {
    return load(core::weight_type(args), args.weight, j * args.weight_stride + i);
  });
}

void linear_blocks(const rf_linear_args& args, const core::BlockWeight& weight) {
  linear_by(args, [&](int64_t j, int64_t i) { return weight.at(j, i); });
}

void linear_backward(const rf_linear_args& args, const rf_linear_grads& grads) {
  const auto dy = [&](int64_t r, int64_t j) { return load(args.dtype, grads.y, r * grads.y_stride + j); };
  for (int64_t r = 0; grads.x != nullptr && r < args.rows; ++r) {
    for (int64_t i = 0; i < args.in; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < args.out; ++j)
        sum += dy(r, j) * load(core::weight_type(args), args.weight, j * args.weight_stride + i);
      store(args.dtype, grads.x, r * grads.x_stride + i, sum);
    }
  }
  for (int64_t j = 0; grads.weight != nullptr && j < args.out; ++j) {
    for (int64_t i = 0; i < args.in; ++i) {
      double sum = 0;
      for (int64_t r = 0; r < args.rows; ++r) sum += dy(r, j) * load(args.dtype, args.x, r * args.x_stride + i);
      store(core::weight_type(args), grads.weight, j * grads.weight_stride + i, sum);
    }
  }
  for (int64_t j = 0; grads.bias != nullptr && j < args.out; ++j) {
    double sum = 0;
    for (int64_t r = 0; r < args.rows; ++r) sum += dy(r, j);
    store(core::parameter_type(args.dtype), grads.bias, j, sum);
  }
}

}  // namespace rf::ref
