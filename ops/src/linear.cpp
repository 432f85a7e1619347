// roformer::linear on CPU and Meta tensors: rf_linear_forward and rf_linear_backward behind PyTorch's dispatcher, and
// the casts of autocast. rf/linear.h documents the backends.
#include "rf/linear.h"

#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "row_arguments.h"

namespace rf::ops {
namespace {

constexpr const char* kWhere = "linear";

rf_linear_activation parse_activation(std::string_view name) {
  return parse_name<rf_linear_activation>(
      kWhere, "activation", name,
      {{"none", RF_LINEAR_NONE}, {"gelu_erf", RF_LINEAR_GELU_ERF}, {"gelu_tanh", RF_LINEAR_GELU_TANH}});
}

void check(const at::Tensor& x, const at::Tensor& weight) {
  check_rows(kWhere, "x", x);
  TORCH_CHECK_VALUE(weight.dim() == 2 && weight.sym_size(1) == x.sym_size(-1), "[linear] weight must be [out, ",
                    x.sym_size(-1), "], got ", weight.sym_sizes());
  TORCH_CHECK_VALUE(
      weight.scalar_type() == x.scalar_type() || (weight.scalar_type() == at::kFloat && x.scalar_type() != at::kDouble),
      "[linear] weight must have the dtype of x or float32, got ", weight.scalar_type(), " for x of ", x.scalar_type());
  TORCH_CHECK_VALUE(weight.device() == x.device(), "[linear] weight must be on ", x.device(), ", got ",
                    weight.device());
}

at::Tensor empty_result(const at::Tensor& x, const at::Tensor& weight) {
  c10::SymDimVector sizes(x.sym_sizes());
  sizes.back() = weight.sym_size(0);
  return at::empty_symint(sizes, x.options());
}

// All fields except pointers.
rf_linear_args core_args(const at::Tensor& x, const at::Tensor& weight) {
  rf_linear_args args{};
  args.struct_size = sizeof args;
  args.dtype = *core_dtype(x.scalar_type());
  args.weight_dtype = *core_dtype(weight.scalar_type());
  args.rows = c10::multiply_integers(x.sizes().slice(0, x.dim() - 1));
  args.in = weight.size(1);
  args.out = weight.size(0);
  return args;
}

at::Tensor linear_cpu(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias,
                      std::string_view activation) {
  check(x, weight);
  check_parameter(kWhere, "bias", bias.value_or(at::Tensor()), weight.sym_size(0), x.device());
  const at::Tensor y = empty_result(x, weight), ready = ready_parameter(bias.value_or(at::Tensor()), x);
  const RowView rows(x), weight_rows(weight);
  rf_linear_args args = core_args(x, weight);
  args.x = rows.data();
  args.x_stride = rows.stride();
  args.weight = weight_rows.data();
  args.weight_stride = weight_rows.stride();
  args.activation = parse_activation(activation);
  args.bias = data_or_null(ready);
  args.y = y.mutable_data_ptr();
  args.y_stride = args.out;
  call_core(rf_linear_forward, &args);
  return y;
}

at::Tensor linear_meta(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias,
                       std::string_view activation) {
  check(x, weight);
  check_parameter(kWhere, "bias", bias.value_or(at::Tensor()), weight.sym_size(0), x.device());
  parse_activation(activation);
  return empty_result(x, weight);
}

// Tensors for the gradients of x, weight and bias, the last in core's dtype.
std::vector<at::Tensor> empty_gradients(const at::Tensor& grad, const std::array<bool, 3>& wanted, const at::Tensor& x,
                                        const at::Tensor& weight) {
  check(x, weight);
  check_same(kWhere, "grad", grad, empty_result(x, weight));
  std::vector<at::Tensor> grads(wanted.size());
  if (wanted[0]) grads[0] = empty_like_rows(x);
  if (wanted[1]) grads[1] = empty_like_rows(weight);
  if (wanted[2]) grads[2] = at::empty_symint({weight.sym_size(0)}, x.options().dtype(parameter_type(x)));
  return grads;
}

std::vector<at::Tensor> backward_cpu(const at::Tensor& grad, std::array<bool, 3> wanted, const at::Tensor& x,
                                     const at::Tensor& weight) {
  std::vector<at::Tensor> results = empty_gradients(grad, wanted, x, weight);
  const RowView dy(grad.to(x.scalar_type()));
  rf_linear_args args = core_args(x, weight);
  std::optional<RowView> rows, weight_rows;
  if (wanted[1]) {
    rows.emplace(x);
    args.x = rows->data();
    args.x_stride = rows->stride();
  }
  if (wanted[0]) {
    weight_rows.emplace(weight);
    args.weight = weight_rows->data();
    args.weight_stride = weight_rows->stride();
  }
  rf_linear_grads grads{};
  grads.struct_size = sizeof grads;
  grads.y = dy.data();
  grads.y_stride = dy.stride();
  grads.x = mutable_or_null(results[0]);
  grads.weight = mutable_or_null(results[1]);
  grads.x_stride = grads.weight_stride = args.in;
  grads.bias = mutable_or_null(results[2]);
  call_core(rf_linear_backward, &args, &grads);
  return defined_of(std::move(results));
}

std::vector<at::Tensor> backward_meta(const at::Tensor& grad, std::array<bool, 3> wanted, const at::Tensor& x,
                                      const at::Tensor& weight) {
  return defined_of(empty_gradients(grad, wanted, x, weight));
}

// Like torch's linear, but the kernel rounds float32 weights, and bias is not cast.
at::Tensor linear_autocast(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias,
                           std::string_view activation) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  const at::ScalarType dtype = at::autocast::get_autocast_dtype(at::kCPU);
  const auto cast = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kDouble || !tensor.is_floating_point() ? tensor : tensor.to(dtype);
  };
  const at::Tensor cast_x = cast(x);
  return linear(cast_x, weight.scalar_type() == at::kFloat && cast_x.scalar_type() == dtype ? weight : cast(weight),
                bias, activation);
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias,
                  std::string_view activation) {
  static const auto op = find_operator<decltype(linear)>("roformer::linear");
  return op.call(x, weight, bias, activation);
}

std::vector<at::Tensor> dispatch_linear_backward(const at::Tensor& grad, std::array<bool, 3> wanted,
                                                 const at::Tensor& x, const at::Tensor& weight) {
  static const auto op = find_operator<decltype(dispatch_linear_backward)>("roformer::linear_backward");
  return op.call(grad, wanted, x, weight);
}

TORCH_LIBRARY_IMPL(roformer, CPU, library) {
  library.impl("linear", linear_cpu);
  library.impl("linear_backward", backward_cpu);
}

TORCH_LIBRARY_IMPL(roformer, Meta, library) {
  library.impl("linear", linear_meta);
  library.impl("linear_backward", backward_meta);
}

TORCH_LIBRARY_IMPL(roformer, AutocastCPU, library) { library.impl("linear", linear_autocast); }

}  // namespace rf::ops
