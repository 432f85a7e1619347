// Tensors for experiments (tensors.h).
#include "tensors.h"

#include <ATen/ATen.h>

#include "rf/io/error.h"
#include "rf/ops/ops.h"
#include "rf/rope.h"

namespace rf::reproduce {

std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

double largest(const at::Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

at::Tensor integers(int64_t begin, int64_t end) {
  return at::arange(begin, end, at::kLong);
}

at::Tensor frequencies(int64_t dim, double base) {
  std::vector<double> hi(static_cast<size_t>(dim / 2)), lo(hi.size());
  if (rf_rope_frequencies(base, dim, hi.data(), lo.data()) != RF_OK) throw Error("reproduce", rf_last_error());
  return at::tensor(hi, at::kDouble);
}

ops::Rotation rotation(const at::Tensor& positions, int64_t dim, at::ScalarType dtype) {
  const auto [cos, sin] =
      ops::rope_table(positions, frequencies(dim), /*freqs_lo=*/{}, /*scale=*/1.0, ops::row_dtype(dtype));
  return {cos.unsqueeze(0), sin.unsqueeze(0)};
}

at::Tensor rotated(const at::Tensor& x, const at::Tensor& positions) {
  return ops::rope(x, positions, {.layout = "pairs"});
}

}  // namespace rf::reproduce
