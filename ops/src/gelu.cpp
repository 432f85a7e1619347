// roformer::gelu on CPU and Meta tensors: rf_gelu_* behind PyTorch's dispatcher.
#include "rf/rows.h"
#include "row_arguments.h"

namespace rf::ops {
namespace {

rf_gelu_form parse_form(std::string_view form) {
  return parse_name<rf_gelu_form>("gelu", "form", form, {{"erf", RF_GELU_ERF}, {"tanh", RF_GELU_TANH}});
}

void check_gelu(const GeluCall& call) {
  check_rows("gelu", "x", call.x);
  check_parameter("gelu", "bias", call.bias, call.x.sym_size(-1), call.x.device());
  parse_form(call.form);
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

std::tuple<at::Tensor> gelu_cpu(const GeluCall& call) {
  check_gelu(call);
  const at::Tensor y = empty_like_rows(call.x), bias = ready_parameter(call.bias, call.x);
  const RowView rows(call.x);
  rf_gelu_args args = gelu_args(rows, bias, call.form);
  args.y = y.mutable_data_ptr();
  args.y_stride = rows.columns();
  call_core(rf_gelu_forward, &args);
  return y;
}

std::tuple<at::Tensor> gelu_meta(const GeluCall& call) {
  check_gelu(call);
  return empty_like_rows(call.x);
}

// Gradients of x and of bias, the latter in core's dtype; undefined where not wanted.
std::array<at::Tensor, 2> gelu_gradients(const GeluOperator::Backward& given, const GeluCall& call) {
  check_gelu(call);
  check_same("gelu", "grad", given.grad, call.x);
  TORCH_CHECK_VALUE(call.bias.defined() || !given.wanted[1],
                    "[gelu] wanted must name arguments that are given, got the absent bias");
  std::array<at::Tensor, 2> grads;
  if (given.wanted[0]) grads[0] = empty_like_rows(call.x);
  if (given.wanted[1]) {
    grads[1] = at::empty_symint(call.bias.sym_sizes(), call.bias.options().dtype(parameter_type(call.x)));
  }
  return grads;
}

std::vector<at::Tensor> gelu_backward_cpu(const GeluOperator::Backward& given, const GeluCall& call) {
  const std::array<at::Tensor, 2> results = gelu_gradients(given, call);
  const at::Tensor bias = ready_parameter(call.bias, call.x);
  const RowView rows(call.x), dy(given.grad.to(call.x.scalar_type()));
  const rf_gelu_args args = gelu_args(rows, bias, call.form);
  rf_gelu_grads grads{};
  grads.struct_size = sizeof grads;
  grads.y = dy.data();
  grads.y_stride = dy.stride();
  grads.x = mutable_or_null(results[0]);
  grads.x_stride = rows.columns();
  grads.bias = mutable_or_null(results[1]);
  call_core(rf_gelu_backward, &args, &grads);
  return of_wanted<2>(results, {call.x, call.bias});
}

std::vector<at::Tensor> gelu_backward_meta(const GeluOperator::Backward& given, const GeluCall& call) {
  return of_wanted<2>(gelu_gradients(given, call), {call.x, call.bias});
}

}  // namespace

at::Tensor gelu(const at::Tensor& x, const std::optional<at::Tensor>& bias, std::string_view form) {
  return std::get<0>(dispatch<GeluOperator>({x, bias.value_or(at::Tensor()), std::string(form)}));
}

TORCH_LIBRARY_IMPL(roformer, CPU, library) {
  library.impl("gelu", boxed<gelu_cpu>());
  library.impl("gelu_backward", boxed<gelu_backward_cpu>());
}

TORCH_LIBRARY_IMPL(roformer, Meta, library) {
  library.impl("gelu", boxed<gelu_meta>());
  library.impl("gelu_backward", boxed<gelu_backward_meta>());
}

}  // namespace rf::ops
