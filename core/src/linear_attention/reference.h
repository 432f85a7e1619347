// Linear attention in float64 loops over all pairs (core/ref/linear_attention.cpp), forward and backward, written from
// the equation in rf/linear_attention.h. Tests compare the chunks with them, and RF_KERNEL=ref runs them. They use one
// thread, one row of weights at a time, and neither chunks nor kept sums over keys, except for a state that the caller
// requests.
#pragma once

#include "rf/linear_attention.h"

namespace rf::ref {

// Arrays of any dtype; the arguments have passed the operator's checks.
void linear_attention(const rf_linear_attention_args& args);
void linear_attention_backward(const rf_linear_attention_args& args, const rf_linear_attention_grads& grads);

}  // namespace rf::ref
