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

namespace {

// The frequencies as sums of two numbers, {hi, lo}.
std::pair<at::Tensor, at::Tensor> exact_frequencies(int64_t dim, double base) {
  std::vector<double> hi(static_cast<size_t>(dim / 2)), lo(hi.size());
  if (rf_rope_frequencies(base, dim, hi.data(), lo.data()) != RF_OK) throw Error("reproduce", rf_last_error());
  return {at::tensor(hi, at::kDouble), at::tensor(lo, at::kDouble)};
}

}  // namespace

at::Tensor frequencies(int64_t dim, double base) {
  return exact_frequencies(dim, base).first;
}

ops::Rotation rotation(const at::Tensor& positions, int64_t dim, at::ScalarType dtype, double base) {
  const auto [hi, lo] = exact_frequencies(dim, base);
  const auto [cos, sin] = ops::rope_table(positions, hi, lo, /*scale=*/1.0, ops::row_dtype(dtype));
  return {cos.unsqueeze(0), sin.unsqueeze(0)};
}

at::Tensor rotated(const at::Tensor& x, const at::Tensor& positions) {
  ops::RopeOptions options;
  options.layout = "pairs";
  return ops::rope(x, positions, options);
}

}  // namespace rf::reproduce
