// Which product computes the linear layers of models: a fixed rule on dtype, rows and the instruction set in use.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

namespace rf::nn {

// Weights are put in order for a product with so many rows; fewer do not pay for it.
inline constexpr int64_t kMinKernelRows = 16;

// For CPU data of a dtype, under autocast autocast's: "torch", or what rf_linear_backend names.
std::string linear_backend(c10::ScalarType dtype, int64_t rows);

}  // namespace rf::nn
