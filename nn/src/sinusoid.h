// Sinusoids (rf/model/rotary_rows.h) as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "rf/model/rotary_rows.h"

namespace rf::nn {

// positions: int64 or float64, any shape [..]. Result: [.., width], float64 if dtype is float64, otherwise float32.
at::Tensor sinusoid(const at::Tensor& positions, int64_t width, SinusoidLayout layout, at::ScalarType dtype);

}  // namespace rf::nn
