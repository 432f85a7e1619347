// Layers by kernels or by torch (see the header).
#include "layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>
#include <c10/util/Exception.h>

#include <string_view>

#include "known_values.h"
#include "rf/nn/devices.h"
#include "rf/nn/linear_backend.h"
#include "rf/ops/kernels.h"

namespace rf::nn {

namespace {

bool kernels_take(at::ScalarType dtype) {
  return (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf) && !ops::reference_is_asked_for();
}

bool kernels_take(const at::Tensor& x) {
  return x.device().is_cpu() && kernels_take(x.scalar_type()) && !is_inside_transform();
}

bool kernel_takes(const Linear& layer, const at::Tensor& x) {
  const int64_t rows = layer.weight->size(1) == 0 ? 0 : x.numel() / layer.weight->size(1);
  if (rows < kMinKernelRows || !kernels_take(x)) return false;
  return autocast_dtype(x.device()).has_value() || layer.weight->scalar_type() == x.scalar_type();
}

// Name for the operator of the linear layer; empty if that operator does not support it.
std::string_view gelu_name(Activation activation) {
  return activation == Activation::kGelu ? "gelu_erf" : activation == Activation::kGeluTanh ? "gelu_tanh" : "";
}

std::optional<at::Tensor> optional(const at::Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; }

}  // namespace

std::string linear_backend(c10::ScalarType dtype, int64_t rows) {
  return rows < kMinKernelRows || !kernels_take(dtype) ? "torch" : ops::linear_backend(dtype, rows);
}

at::Tensor activate(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::kGelu: return kernels_take(x) ? ops::gelu(x, {}, "erf") : at::gelu(x);
    case Activation::kGeluTanh: return kernels_take(x) ? ops::gelu(x, {}, "tanh") : at::gelu(x, "tanh");
    case Activation::kRelu: return at::relu(x);
    case Activation::kSquaredRelu: return at::relu(x).square();
    case Activation::kSilu: return at::silu(x);
    case Activation::kTanh: return at::tanh(x);
  }
  fail("model", "unknown activation, got {}", static_cast<int>(activation));
}

at::Tensor Linear::operator()(const at::Tensor& x) const {
  if (kernel_takes(*this, x)) return ops::linear(x, weight, optional(bias));
  return at::linear(x, weight, bias);
}

at::Tensor Linear::operator()(const at::Tensor& x, Activation activation) const {
  const std::string_view name = gelu_name(activation);
  if (!name.empty() && kernel_takes(*this, x)) return ops::linear(x, weight, optional(bias), name);
  return activate(activation, (*this)(x));
}

ops::NormOptions Norm::options() const {
  return {.gamma = gain, .beta = bias, .kind = kind == NormKind::kRms ? "rms" : "layer", .eps = eps};
}

at::Tensor Norm::operator()(const at::Tensor& x) const {
  if (kernels_take(x)) return ops::norm(x, options());
  if (kind == NormKind::kRms) return at::rms_norm(x, x.size(-1), optional(gain), eps);
  return at::layer_norm(x, x.size(-1), gain, bias, eps);
}

at::Tensor Norm::operator()(const at::Tensor& x, const at::Tensor& residual, const Dropout& drop, double p) const {
  const bool types_fit = residual.scalar_type() == x.scalar_type() || residual.scalar_type() == at::kFloat;
  if (!types_fit || !kernels_take(x)) return (*this)(drop(x, p) + residual);
  ops::NormOptions options = this->options();
  options.residual = residual;
  if (drop.training && p > 0) {
    options.dropout = p;
    options.seed = static_cast<int64_t>(drop.key->seed);
    options.stream = drop.key->next_stream();
  }
  return ops::norm(x, options);
}

}  // namespace rf::nn
