// Operations on rows in plain loops on one thread (core/ref), straight from rf/rows.h and rf/dropout.h, with float64
// arithmetic for every dtype.
#pragma once

#include "rf/dropout.h"
#include "rf/rows.h"

namespace rf::core {

// The element type of residual, y and their gradients.
inline rf_dtype stream_type(const rf_norm_args& x) { return x.stream_dtype == rf_dtype{} ? x.dtype : x.stream_dtype; }

}  // namespace rf::core

namespace rf::ref {

void norm(const rf_norm_args& x);
void norm_backward(const rf_norm_args& x, const rf_norm_grads& grads);

void gelu(const rf_gelu_args& x);
void gelu_backward(const rf_gelu_args& x, const rf_gelu_grads& grads);

void softmax(const rf_softmax_args& x);
void softmax_backward(const rf_softmax_args& x, const rf_softmax_grads& grads);

void cross_entropy(const rf_cross_entropy_args& x);
void cross_entropy_backward(const rf_cross_entropy_args& x, const rf_cross_entropy_grads& grads);

// Whether dropout keeps an element. threshold = round(65536 p).
bool keeps(int64_t element, uint32_t threshold, uint64_t seed, uint64_t stream);
void dropout(rf_dtype dtype, const void* x, void* y, int64_t count, uint32_t threshold, uint64_t seed, uint64_t stream);

}  // namespace rf::ref
