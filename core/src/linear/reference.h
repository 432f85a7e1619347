// The linear layer in plain loops (core/ref/linear.cpp) from the equations in rf/linear.h, with float64 sums, for every
// element type.
#pragma once

#include "linear/gemm_int8.h"
#include "rf/linear.h"

namespace rf::core {

// The element type of weight and its gradient.
inline rf_dtype weight_type(const rf_linear_args& args) {
  return args.weight_dtype == rf_dtype{} ? args.dtype : args.weight_dtype;
}

}  // namespace rf::core

namespace rf::ref {

// args.packed must be NULL.
void linear(const rf_linear_args& args);
// The definition of rf_linear_pack_int8: computes its bytes in float32, and everything after them in float64.
void linear_int8(const rf_linear_args& args, const core::Int8Weight& weight);
void linear_backward(const rf_linear_args& args, const rf_linear_grads& grads);

}  // namespace rf::ref
