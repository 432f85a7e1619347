// Argument rules shared by the rotary tables, the rotary operator and the rotation by given rows. Each broken rule
// throws InvalidArgument.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "rf/rope.h"
#include "rope/double_double.h"
#include "rope/tiles.h"

namespace rf::core {

// Copies [num_freqs] frequencies; lo may be NULL. num_freqs in 1..2^19, every value finite, |lo| <= |hi|.
std::vector<DoubleDouble> checked_frequencies(const double* hi, const double* lo, int64_t num_freqs);

double max_magnitude(const std::vector<DoubleDouble>& frequencies);

// Finite, not 0, and within 2^-100..2^100 in magnitude, so that it and its inverse are normal floats.
void check_scale(double scale);

// Finite, and the angle within kMaxAngle.
void check_position(double position, double max_theta);

// The same of one element of the position array of a call; integers also within 2^53.
void check_given_position(const rf_rope_args& args, int64_t b, int64_t t, double max_theta);

// Product of extents >= 0; an overflow is refused under the given name.
int64_t checked_product(std::initializer_list<int64_t> extents, const char* name, const char* where);

// Checks everything in a call except its data: enums, extents, strides, pointers. num_freqs belongs to the operator.
void check_args(const rf_rope_args& args, int64_t num_freqs);
void check_rows_args(const rf_rope_rows_args& args);

}  // namespace rf::core
