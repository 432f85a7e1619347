// The linear layer in plain loops (see the header).
#include "linear/reference.h"

#include "common/element.h"
#include "convert.h"
#include "linear/checks.h"
#include "rows/reference.h"

namespace rf::ref {
namespace {

double activated(rf_linear_activation activation, double sum) {
  if (activation == RF_LINEAR_NONE) return sum;
  rf_gelu_args args = {};
  args.dtype = RF_F64;
  args.form = activation == RF_LINEAR_GELU_ERF ? RF_GELU_ERF : RF_GELU_TANH;
  args.rows = args.columns = 1;
  args.x = args.y = &sum;
  gelu(args);
  return sum;
}

}  // namespace

void linear(const rf_linear_args& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t j = 0; j < args.out; ++j) {
      double sum = args.bias == nullptr ? 0 : load(core::parameter_type(args.dtype), args.bias, j);
      for (int64_t i = 0; i < args.in; ++i) {
        sum += load(args.dtype, args.x, r * args.x_stride + i) *
               load(core::weight_type(args), args.weight, j * args.weight_stride + i);
      }
      store(args.dtype, args.y, r * args.y_stride + j, activated(args.activation, sum));
    }
  }
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
