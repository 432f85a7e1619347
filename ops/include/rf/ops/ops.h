// The operators of the library `roformer` as C++ functions with autograd; each is also torch.ops.roformer.<name>.
// A bad argument throws c10::ValueError, "[rope] rule, got value"; positions that require grad, and forward-mode
// differentiation, throw c10::NotImplementedError.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <utility>

namespace rf::ops {

// Rotation by given rows (rf/ops/terms.h): x [B,T,H,D], its last dimension contiguous (others are copied); cos, sin [B
// or 1, T, R/2], float32, or float64 for float64 x; the elements from R on are copied. direction: "forward", or
// "transpose", R^T. Gradients, of any order, to x, cos and sin; if neither row requires grad, the backward is one
// transposed rotation and does not keep x. Result: a new contiguous tensor of x's shape and dtype.
at::Tensor rotate(const at::Tensor& x_BTHD, const at::Tensor& cos, const at::Tensor& sin, std::string_view layout,
                  std::string_view direction = "forward");

// Rows of a rotation: cos and sin of positions * (freqs + freqs_lo), times scale, with the accuracy of rf/rope.h.
// positions: integers or float64, any shape [..]; freqs: float64 [R/2], or [.., R/2] with the leading dimensions of
// positions or 1 in their place (frequencies that differ from token to token); freqs_lo: the same shape, or undefined.
// scale: finite, not 0. Result: two contiguous tensors [.., R/2] of dtype (float32 or float64). Gradients, of any
// order, to freqs. Every call computes its rows, so call it once for all layers.
std::pair<at::Tensor, at::Tensor> rope_table(const at::Tensor& positions, const at::Tensor& freqs,
                                             const at::Tensor& freqs_lo, double scale, at::ScalarType dtype);

// Dropout of core/include/rf/dropout.h: a function of (seed, stream, element index) alone; the backward saves only
// these numbers. p == 0 returns x.
at::Tensor dropout(const at::Tensor& x, double p, int64_t seed, int64_t stream);

}  // namespace rf::ops
