// Rotary embedding in float64 loops (core/ref/rope.cpp), written from the formula (RoFormer Eq. 34; R-CONV-05..07,
// R-ROPE-06). Tests compare the kernels with them, and RF_KERNEL=ref runs them. They compute an angle for every element
// pair, without tables or shortcuts.
#pragma once

#include "rf/rope.h"

namespace rf::ref {

// theta: hi[i] + lo[i], [num_freqs]. The arguments must have passed the operator's checks.
void rope(const double* hi, const double* lo, int64_t num_freqs, double scale, const rf_rope_args& args);

// The same by given rows.
void rotate(const rf_rope_rows_args& args);

}  // namespace rf::ref
