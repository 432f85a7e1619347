// roformer::gelu on CPU and Meta tensors: rf_gelu_* behind PyTorch's dispatcher.
#include <torch/library.h>

#include "rf/rows.h"
#include "row_arguments.h"

namespace rf::ops {
namespace {

rf_gelu_form parse_form(std::string_view form) {
  return parse_name<rf_gelu_form>("gelu", "form", form, {{"erf", RF_GELU_ERF}, {"tanh", RF_GELU_TANH}});
}

void check_gelu(const at::Tensor& x, const OptionalTensor& bias, std::string_view form) {
  check_rows("gelu", "x", x);
  check_parameter("gelu", "bias", bias, x.sym_size(-1), x.device());
  parse_form(form);
}

rf_gelu_args gelu_args(Borrowed<RowView> x, Borrowed<at::Tensor> bias, std::string_view form) {
  rf_gelu_args args{};
  args.struct_size = sizeof args;
  args.dtype = *core_dtype(x->rows_NC.scalar_type());
  args.form = parse_form(form);
  args.rows = x->rows();
  args.columns = x->columns();
  args.x = x->data();
  args.x_stride = x->stride();
  args.bias = data_or_null(bias);
  return args;
}

at::Tensor gelu_cpu(const at::Tensor& x, const OptionalTensor& bias, std::string_view form) {
  check_gelu(x, bias, form);
  const at::Tensor y = empty_like_rows(x), ready = ready_parameter(bias, x);
  const RowView rows(x);
  rf_gelu_args args = gelu_args(rows, ready, form);
  args.y = y.mutable_data_ptr();
  args.y_stride = rows.columns();
  call_core(rf_gelu_forward, &args);
  return y;
}

at::Tensor gelu_meta(const at::Tensor& x, const OptionalTensor& bias, std::string_view form) {
  check_gelu(x, bias, form);
  return empty_like_rows(x);
}

// Gradients of x and of bias, the latter in core's dtype; undefined where not wanted.
std::array<at::Tensor, 2> gelu_gradients(const at::Tensor& grad, const std::array<bool, 2>& wanted, const at::Tensor& x,
                                         const OptionalTensor& bias, std::string_view form) {
  check_gelu(x, bias, form);
  check_same("gelu", "grad", grad, x);
  TORCH_CHECK_VALUE(bias || !wanted[1], "[gelu] wanted must name arguments that are given, got the absent bias");
  return {wanted[0] ? empty_like_rows(x) : at::Tensor(),
          wanted[1] ? at::empty_symint(bias->sym_sizes(), bias->options().dtype(parameter_type(x))) : at::Tensor()};
}

std::vector<at::Tensor> gelu_backward_cpu(const at::Tensor& grad, std::array<bool, 2> wanted, const at::Tensor& x,
                                          const OptionalTensor& bias, std::string_view form) {
  const std::array<at::Tensor, 2> results = gelu_gradients(grad, wanted, x, bias, form);
  const at::Tensor ready = ready_parameter(bias, x);
  const RowView rows(x), dy(grad.to(x.scalar_type()));
  const rf_gelu_args args = gelu_args(rows, ready, form);
  rf_gelu_grads grads{};
  grads.struct_size = sizeof grads;
  grads.y = dy.data();
  grads.y_stride = dy.stride();
  grads.x = mutable_or_null(results[0]);
  grads.x_stride = rows.columns();
  grads.bias = mutable_or_null(results[1]);
  call_core(rf_gelu_backward, &args, &grads);
  return of_wanted<2>(results, {x, bias});
}

std::vector<at::Tensor> gelu_backward_meta(const at::Tensor& grad, std::array<bool, 2> wanted, const at::Tensor& x,
                                           const OptionalTensor& bias, std::string_view form) {
  return of_wanted<2>(gelu_gradients(grad, wanted, x, bias, form), {x, bias});
}

}  // namespace

at::Tensor gelu(const at::Tensor& x, const OptionalTensor& bias, std::string_view form) {
  static const auto op = find_operator<decltype(gelu)>("roformer::gelu");
  return op.call(x, bias, form);
}

std::vector<at::Tensor> dispatch_gelu_backward(const at::Tensor& grad, std::array<bool, 2> wanted, const at::Tensor& x,
                                               const OptionalTensor& bias, std::string_view form) {
  static const auto op = find_operator<decltype(dispatch_gelu_backward)>("roformer::gelu_backward");
  return op.call(grad, wanted, x, bias, form);
}

TORCH_LIBRARY_IMPL(roformer, CPU, library) {
  library.impl("gelu", gelu_cpu);
  library.impl("gelu_backward", gelu_backward_cpu);
}

TORCH_LIBRARY_IMPL(roformer, Meta, library) {
  library.impl("gelu", gelu_meta);
  library.impl("gelu_backward", gelu_backward_meta);
}

}  // namespace rf::ops
