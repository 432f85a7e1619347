// Attention over terms by the plain formula in 16 bits: operation by operation as a framework without a fused kernel
// computes it, each result rounded to the type. What a fused kernel of that type is compared with: its errors against
// float64 are at most some times these (tolerances.h).
#pragma once

#include "rf/attention.h"

namespace rf::tests {

// The number of the type that is nearest to `value`.
double rounded(rf_dtype dtype, double value);

// Forward and backward of `x`, whose arrays hold doubles as for RF_F64; so do those of the gradients. Writes x.out and
// the gradients that are wanted. No gate, no dropout, no gradients of cos and sin.
void plain_attention(rf_dtype dtype, const rf_attention_args& x, const rf_attention_grads& grads);

}  // namespace rf::tests
