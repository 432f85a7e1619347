// Operations on rows in plain loops on one thread (core/ref), straight from rf/rows.h and rf/dropout.h, with float64
// arithmetic for every dtype.
#ifndef RF_CORE_ROWS_REFERENCE_H_
#define RF_CORE_ROWS_REFERENCE_H_

#include "rf/dropout.h"
#include "rf/rows.h"

namespace rf::ref {

void norm(const rf_norm_args& x);
void norm_backward(const rf_norm_args& x, const rf_norm_grads& grads);

void gelu(const rf_gelu_args& x);
void gelu_backward(const rf_gelu_args& x, const rf_gelu_grads& grads);

void softmax(const rf_softmax_args& x);
void softmax_backward(const rf_softmax_args& x, const rf_softmax_grads& grads);

void cross_entropy(const rf_cross_entropy_args& x);
void cross_entropy_backward(const rf_cross_entropy_args& x, const rf_cross_entropy_grads& grads);

// threshold = round(65536 p).
void dropout(rf_dtype dtype, const void* x, void* y, int64_t count, uint32_t threshold, uint64_t seed, uint64_t stream);

}  // namespace rf::ref
#endif
