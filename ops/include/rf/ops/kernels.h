// Tells which kernels core uses, for modules that choose between core and torch's operators.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

namespace rf::ops {

// Whether RF_KERNEL=ref. Throws c10::ValueError for an unknown instruction set, like any call of a kernel.
bool reference_is_asked_for();

// The requirement of the attention kernels that `device` does not meet, as the end of a sentence "it needs ..."; empty:
// they run there. For a CUDA device the Python package answers, which has its kernels; if a requirement is missing, the
// user is warned once.
std::string missing_on(c10::Device device);

// rf_linear_backend (rf/linear.h) for float32, bfloat16 or float16 data with `rows` rows.
std::string linear_backend(c10::ScalarType dtype, int64_t rows);

}  // namespace rf::ops
