// Chooses the product of linear layers in models, by a fixed rule on dtype, rows and the instruction set in use.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

namespace rf::nn {

// Weights are packed for products with at least this many rows; for fewer rows packing costs more than it gains.
inline constexpr int64_t kMinKernelRows = 16;

// For CPU data of a dtype (under autocast, of autocast's dtype): "torch", or the result of rf_linear_backend.
std::string linear_backend(c10::ScalarType dtype, int64_t rows);

}  // namespace rf::nn
