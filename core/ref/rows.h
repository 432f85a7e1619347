// Operations on rows in plain loops on one thread, straight from rf/rows.h, with float64 arithmetic for every dtype.
#ifndef RF_CORE_REF_ROWS_H_
#define RF_CORE_REF_ROWS_H_

#include "rf/rows.h"

namespace rf::ref {

// The type of parameters, and of one number for each row, where the arrays are of `dtype`.
inline rf_dtype parameter_type(rf_dtype dtype) {
  return dtype == RF_F64 ? RF_F64 : RF_F32;
}

// The element type of residual, y and their gradients.
inline rf_dtype stream_type(const rf_norm_args& x) {
  return x.stream_dtype == rf_dtype{} ? x.dtype : x.stream_dtype;
}

void norm(const rf_norm_args& x);
void norm_backward(const rf_norm_args& x, const rf_norm_grads& grads);

void gelu(const rf_gelu_args& x);
void gelu_backward(const rf_gelu_args& x, const rf_gelu_grads& grads);

void softmax(const rf_softmax_args& x);
void softmax_backward(const rf_softmax_args& x, const rf_softmax_grads& grads);

void cross_entropy(const rf_cross_entropy_args& x);
void cross_entropy_backward(const rf_cross_entropy_args& x, const rf_cross_entropy_grads& grads);

}  // namespace rf::ref
#endif
