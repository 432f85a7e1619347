// The linear layer in plain loops (see the header).
#include "linear.h"

#include "convert.h"

namespace rf::ref {
namespace {

rf_dtype bias_type(const rf_linear_args& args) {
  return args.dtype == RF_F64 ? RF_F64 : RF_F32;
}

}  // namespace

void linear(const rf_linear_args& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t j = 0; j < args.out; ++j) {
      double sum = args.bias == nullptr ? 0 : load(bias_type(args), args.bias, j);
      for (int64_t i = 0; i < args.in; ++i) {
        sum +=
            load(args.dtype, args.x, r * args.x_stride + i) * load(args.dtype, args.weight, j * args.weight_stride + i);
      }
      store(args.dtype, args.y, r * args.y_stride + j, sum);
    }
  }
}

void linear_backward(const rf_linear_args& args, const rf_linear_grads& grads) {
  const auto dy = [&](int64_t r, int64_t j) { return load(args.dtype, grads.y, r * grads.y_stride + j); };
  for (int64_t r = 0; grads.x != nullptr && r < args.rows; ++r) {
    for (int64_t i = 0; i < args.in; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < args.out; ++j)
        sum += dy(r, j) * load(args.dtype, args.weight, j * args.weight_stride + i);
      store(args.dtype, grads.x, r * grads.x_stride + i, sum);
    }
  }
  for (int64_t j = 0; grads.weight != nullptr && j < args.out; ++j) {
    for (int64_t i = 0; i < args.in; ++i) {
      double sum = 0;
      for (int64_t r = 0; r < args.rows; ++r) sum += dy(r, j) * load(args.dtype, args.x, r * args.x_stride + i);
      store(args.dtype, grads.weight, j * grads.weight_stride + i, sum);
    }
  }
  for (int64_t j = 0; grads.bias != nullptr && j < args.out; ++j) {
    double sum = 0;
    for (int64_t r = 0; r < args.rows; ++r) sum += dy(r, j);
    store(bias_type(args), grads.bias, j, sum);
  }
}

}  // namespace rf::ref
