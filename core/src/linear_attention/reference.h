// Linear attention in float64 loops over all pairs (core/ref/linear_attention.cpp), forward and backward, written from
// the equation in rf/linear_attention.h: what the chunks are compared with, and what RF_KERNEL=ref runs. One thread; a
// row of weights at a time. No chunks and, but for the state that a caller wants, no sums over keys that are kept.
#ifndef RF_CORE_LINEAR_ATTENTION_REFERENCE_H_
#define RF_CORE_LINEAR_ATTENTION_REFERENCE_H_

#include "rf/linear_attention.h"

namespace rf::ref {

// Arrays of any dtype; the arguments have passed the operator's checks.
void linear_attention(const rf_linear_attention_args& args);
void linear_attention_backward(const rf_linear_attention_args& args, const rf_linear_attention_grads& grads);

}  // namespace rf::ref
#endif
