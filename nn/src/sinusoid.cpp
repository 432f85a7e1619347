// Sinusoids of positions (sinusoid.h).
#include "sinusoid.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include "rf/ops/kernels.h"
#include "rf/ops/ops.h"
#include "rf/ops/terms.h"

namespace rf::nn {

at::Tensor sinusoid(const at::Tensor& positions, int64_t width, SinusoidLayout layout, at::ScalarType dtype) {
  // 10000^(-j/width) for every j, which also serves odd widths: a rotation of 2 * width dimensions has these.
  auto [freqs, freqs_lo] = ops::rope_frequencies(10000.0, 2 * width);
  if (layout != SinusoidLayout::kSineOnly) {
    freqs = freqs.slice(0, 0, width, 2).contiguous();
    freqs_lo = freqs_lo.slice(0, 0, width, 2).contiguous();
  }
  const auto [cos, sin] = ops::rope_table(positions, freqs, freqs_lo, 1, ops::row_dtype(dtype));
  switch (layout) {
    case SinusoidLayout::kInterleaved:
      return at::stack({sin, cos}, -1).flatten(-2).narrow(-1, 0, width);
    case SinusoidLayout::kHalf:
      return at::cat({sin, cos.narrow(-1, 0, width / 2)}, -1);
    case SinusoidLayout::kSineOnly:
      break;
  }
  return sin;
}

}  // namespace rf::nn
