// The linear layer in plain loops from the equations in rf/linear.h, with float64 sums, for every element type.
#ifndef RF_CORE_REF_LINEAR_H_
#define RF_CORE_REF_LINEAR_H_

#include "rf/linear.h"

namespace rf::ref {

// The element type of weight and its gradient.
inline rf_dtype weight_type(const rf_linear_args& args) {
  return args.weight_dtype == rf_dtype{} ? args.dtype : args.weight_dtype;
}

// args.packed must be NULL.
void linear(const rf_linear_args& args);
void linear_backward(const rf_linear_args& args, const rf_linear_grads& grads);

}  // namespace rf::ref
#endif
