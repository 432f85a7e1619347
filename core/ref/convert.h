// Elements of the four types as doubles and back, rounded once to nearest even, straight from the definition of the
// formats (IEEE 754 binary16/32/64, bfloat16 = the upper half of a binary32).
#pragma once

#include <cstdint>

#include "rf/status.h"

namespace rf::ref {

double load(rf_dtype dtype, const void* data, int64_t index);
void store(rf_dtype dtype, void* data, int64_t index, double value);

}  // namespace rf::ref
