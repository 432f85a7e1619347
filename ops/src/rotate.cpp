// Rotation by given rows, and the rows of a rotation (rf/ops/ops.h).
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>

#include "rf/ops/ops.h"

namespace rf::ops {

at::Tensor rotate(const at::Tensor& x_BTHD, const at::Tensor& cos, const at::Tensor& sin, std::string_view layout) {
  const int64_t rotated = 2 * cos.size(-1);
  const at::Tensor x = x_BTHD.narrow(-1, 0, rotated), rest = x_BTHD.narrow(-1, rotated, x_BTHD.size(-1) - rotated);
  const at::Tensor c = cos.unsqueeze(-2), s = sin.unsqueeze(-2);
  const bool pairs = layout == "pairs";
  const at::Tensor grouped = pairs ? x.unflatten(-1, {rotated / 2, 2}) : x.unflatten(-1, {2, rotated / 2});
  const int64_t axis = pairs ? -1 : -2;
  const at::Tensor a = grouped.select(axis, 0), b = grouped.select(axis, 1);
  const at::Tensor turned = at::stack({a * c - b * s, b * c + a * s}, axis).flatten(-2);
  return at::cat({turned.to(x_BTHD.scalar_type()), rest}, -1);
}

std::pair<at::Tensor, at::Tensor> rope_table(const at::Tensor& positions, const at::Tensor& freqs,
                                             const at::Tensor& freqs_lo, double scale, at::ScalarType dtype) {
  const at::Tensor theta = freqs_lo.defined() ? freqs + freqs_lo : freqs;
  const at::Tensor angle = positions.to(at::kDouble).unsqueeze(-1) * theta;
  return {(angle.cos() * scale).to(dtype), (angle.sin() * scale).to(dtype)};
}

}  // namespace rf::ops
