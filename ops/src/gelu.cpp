// roformer::gelu and roformer::softmax on CPU and Meta tensors: rf_gelu_* and rf_softmax_* behind PyTorch's dispatcher.
#include <torch/library.h>

#include "find_operator.h"
#include "rf/rows.h"
#include "row_arguments.h"
#include "status.h"

namespace rf::ops {
namespace {

void check_gelu(const at::Tensor& x, const OptionalTensor& bias, std::string_view form) {
  check_rows("gelu", "x", x);
  check_parameter("gelu", "bias", bias, x.sym_size(-1), x.device());
  TORCH_CHECK_VALUE(form == "erf" || form == "tanh", "[gelu] form must be \"erf\" or \"tanh\", got \"", form, "\"");
}

rf_gelu_args gelu_args(Borrowed<RowView> x, Borrowed<at::Tensor> bias, std::string_view form) {
  rf_gelu_args args{};
  args.struct_size = sizeof args;
  args.dtype = *core_dtype(x->rows_NC.scalar_type());
  args.form = form == "tanh" ? RF_GELU_TANH : RF_GELU_ERF;
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

std::vector<at::Tensor> of_wanted(const std::array<at::Tensor, 2>& grads, const OptionalTensor& bias) {
  std::vector<at::Tensor> result;
  if (grads[0].defined()) result.push_back(grads[0]);
  if (grads[1].defined()) result.push_back(grads[1].to(bias->scalar_type()));
  return result;
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
  return of_wanted(results, bias);
}

std::vector<at::Tensor> gelu_backward_meta(const at::Tensor& grad, std::array<bool, 2> wanted, const at::Tensor& x,
                                           const OptionalTensor& bias, std::string_view form) {
  return of_wanted(gelu_gradients(grad, wanted, x, bias, form), bias);
}

at::Tensor softmax_cpu(const at::Tensor& x) {
  check_rows("softmax", "x", x);
  const at::Tensor y = empty_like_rows(x);
  const RowView rows(x);
  rf_softmax_args args{};
  args.struct_size = sizeof args;
  args.dtype = *core_dtype(x.scalar_type());
  args.rows = rows.rows();
  args.columns = rows.columns();
  args.x = rows.data();
  args.x_stride = rows.stride();
  args.y = y.mutable_data_ptr();
  args.y_stride = rows.columns();
  call_core(rf_softmax_forward, &args);
  return y;
}

at::Tensor softmax_meta(const at::Tensor& x) {
  check_rows("softmax", "x", x);
  return empty_like_rows(x);
}

at::Tensor softmax_backward_cpu(const at::Tensor& grad, const at::Tensor& y) {
  check_rows("softmax", "y", y);
  check_same("softmax", "grad", grad, y);
  const at::Tensor dx = empty_like_rows(y);
  const RowView rows(y), dy(grad.to(y.scalar_type()));
  rf_softmax_args args{};
  args.struct_size = sizeof args;
  args.dtype = *core_dtype(y.scalar_type());
  args.rows = rows.rows();
  args.columns = rows.columns();
  args.y = const_cast<void*>(rows.data());  // read by the backward
  args.y_stride = rows.stride();
  args.x_stride = rows.columns();
  rf_softmax_grads grads{};
  grads.struct_size = sizeof grads;
  grads.y = dy.data();
  grads.y_stride = dy.stride();
  grads.x = dx.mutable_data_ptr();
  grads.x_stride = rows.columns();
  call_core(rf_softmax_backward, &args, &grads);
  return dx;
}

at::Tensor softmax_backward_meta(const at::Tensor& grad, const at::Tensor& y) {
  check_rows("softmax", "y", y);
  check_same("softmax", "grad", grad, y);
  return empty_like_rows(y);
}

}  // namespace

at::Tensor dispatch_gelu(const at::Tensor& x, const OptionalTensor& bias, std::string_view form) {
  using Signature = at::Tensor(const at::Tensor&, const OptionalTensor&, std::string_view);
  static const auto op = find_operator<Signature>("roformer::gelu");
  return op.call(x, bias, form);
}

std::vector<at::Tensor> dispatch_gelu_backward(const at::Tensor& grad, std::array<bool, 2> wanted, const at::Tensor& x,
                                               const OptionalTensor& bias, std::string_view form) {
  using Signature = std::vector<at::Tensor>(const at::Tensor&, std::array<bool, 2>, const at::Tensor&,
                                            const OptionalTensor&, std::string_view);
  static const auto op = find_operator<Signature>("roformer::gelu_backward");
  return op.call(grad, wanted, x, bias, form);
}

at::Tensor dispatch_softmax(const at::Tensor& x) {
  static const auto op = find_operator<at::Tensor(const at::Tensor&)>("roformer::softmax");
  return op.call(x);
}

at::Tensor dispatch_softmax_backward(const at::Tensor& grad, const at::Tensor& y) {
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&);
  static const auto op = find_operator<Signature>("roformer::softmax_backward");
  return op.call(grad, y);
}

at::Tensor gelu(const at::Tensor& x, const OptionalTensor& bias, std::string_view form) {
  return dispatch_gelu(x, bias, form);
}

at::Tensor softmax(const at::Tensor& x) { return dispatch_softmax(x); }

TORCH_LIBRARY_IMPL(roformer, CPU, library) {
  library.impl("gelu", gelu_cpu);
  library.impl("gelu_backward", gelu_backward_cpu);
  library.impl("softmax", softmax_cpu);
  library.impl("softmax_backward", softmax_backward_cpu);
}

TORCH_LIBRARY_IMPL(roformer, Meta, library) {
  library.impl("gelu", gelu_meta);
  library.impl("gelu_backward", gelu_backward_meta);
  library.impl("softmax", softmax_meta);
  library.impl("softmax_backward", softmax_backward_meta);
}

}  // namespace rf::ops
