// Vaswani's sinusoids (arXiv 2104.09864 Eq. 4), p[t] = sin and cos of position * 10000^(-2t/width), with the accuracy
// of rf/rope.h. An odd width ends with a sine.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rf::nn {

enum class SinusoidLayout {
  kInterleaved,  // sin, cos, sin, cos, ..: Eq. 4
  kHalf,         // all sines, then all cosines (Marian, transformers' RoFormer); an odd width has a sine more
  kSineOnly,     // element j is sin(position * 10000^(-j/width))
};

// positions: integers or float64, any shape [..]. Result: [.., width], float64 where dtype is, else float32.
at::Tensor sinusoid(const at::Tensor& positions, int64_t width, SinusoidLayout layout, at::ScalarType dtype);

}  // namespace rf::nn
