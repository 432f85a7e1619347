// roformer::norm on CPU and Meta tensors: rf_norm_forward and rf_norm_backward behind PyTorch's dispatcher.
#include <torch/library.h>

#include <cmath>

#include "rf/rows.h"
#include "row_arguments.h"

namespace rf::ops {
namespace {

constexpr const char* kWhere = "norm";

rf_norm_kind parse_kind(std::string_view kind) {
  return parse_name<rf_norm_kind>(kWhere, "kind", kind, {{"layer", RF_NORM_LAYER}, {"rms", RF_NORM_RMS}});
}

// The tensor that gives the result its shape and dtype.
const at::Tensor& stream_of(const NormCall& call) { return call.residual.defined() ? call.residual : call.x; }

void check(const NormCall& call) {
  const at::Tensor& x = call.x;
  check_rows(kWhere, "x", x);
  if (const at::Tensor& residual = call.residual; residual.defined()) {
    check_same(kWhere, "residual", residual, x);
    TORCH_CHECK_VALUE(residual.scalar_type() == x.scalar_type() ||
                          (residual.scalar_type() == at::kFloat && x.scalar_type() != at::kDouble),
                      "[norm] residual must have the dtype of x or float32, got ", residual.scalar_type(), " for x of ",
                      x.scalar_type());
  }
  const c10::SymInt size = x.sym_size(-1);
  check_parameter(kWhere, "bias", call.bias, size, x.device());
  check_parameter(kWhere, "gamma", call.gamma, size, x.device());
  check_parameter(kWhere, "beta", call.beta, size, x.device());
  parse_kind(call.kind);
  TORCH_CHECK_VALUE(call.eps >= 0 && std::isfinite(call.eps), "[norm] eps must be >= 0 and finite, got ", call.eps);
  check_dropout(kWhere, "dropout", call.dropout);
}

// Arguments of core, and the tensors they point to.
struct Ready {
  RowView x;
  std::optional<RowView> residual;
  at::Tensor bias, gamma, beta;
  rf_norm_args args{};

  explicit Ready(const NormCall& call)
      : x(call.x),
        bias(ready_parameter(call.bias, call.x)),
        gamma(ready_parameter(call.gamma, call.x)),
        beta(ready_parameter(call.beta, call.x)) {
    if (call.residual.defined()) residual.emplace(call.residual);
    args.struct_size = sizeof args;
    args.dtype = *core_dtype(call.x.scalar_type());
    args.stream_dtype = *core_dtype(stream_of(call).scalar_type());
    args.kind = parse_kind(call.kind);
    args.rows = x.rows();
    args.columns = x.columns();
    args.x = x.data();
    args.x_stride = x.stride();
    args.residual = residual ? residual->data() : nullptr;
    args.residual_stride = residual ? residual->stride() : 0;
    args.bias = data_or_null(bias);
    args.gamma = data_or_null(gamma);
    args.beta = data_or_null(beta);
    args.dropout = call.dropout;
    args.seed = static_cast<uint64_t>(call.seed.expect_int());
    args.stream = static_cast<uint64_t>(call.stream.expect_int());
    args.eps = call.eps;
  }
};

std::tuple<at::Tensor> norm_meta(const NormCall& call) {
  check(call);
  return empty_like_rows(stream_of(call));
}

std::tuple<at::Tensor> norm_cpu(const NormCall& call) {
  check(call);
  const at::Tensor y = at::empty(call.x.sizes(), stream_of(call).options());
  Ready ready(call);
  ready.args.y = y.mutable_data_ptr();
  ready.args.y_stride = ready.x.columns();
  call_core(rf_norm_forward, &ready.args);
  return y;
}

using Gradients = std::array<at::Tensor, 5>;

Gradients inputs_of(const NormCall& call) { return {call.x, call.bias, call.residual, call.gamma, call.beta}; }

// Gradients of x and residual in their dtypes, of parameters in core's; undefined: not wanted.
Gradients empty_gradients(const NormOperator::Backward& given, const NormCall& call) {
  check(call);
  check_same(kWhere, "grad", given.grad, call.x);
  const Gradients inputs = inputs_of(call);
  const bool is_parameter[] = {false, true, false, true, true};
  Gradients grads;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!given.wanted[i]) continue;
    TORCH_CHECK_VALUE(inputs[i].defined(), "[norm] wanted must name arguments that are given, got the absent argument ",
                      i);
    const at::TensorOptions options = inputs[i].options();
    grads[i] =
        at::empty_symint(inputs[i].sym_sizes(), is_parameter[i] ? options.dtype(parameter_type(call.x)) : options);
  }
  return grads;
}

std::vector<at::Tensor> backward_meta(const NormOperator::Backward& given, const NormCall& call) {
  return of_wanted(empty_gradients(given, call), inputs_of(call));
}

std::vector<at::Tensor> backward_cpu(const NormOperator::Backward& given, const NormCall& call) {
  const Gradients results = empty_gradients(given, call);
  const Ready ready(call);
  const RowView dy(given.grad.to(stream_of(call).scalar_type()));
  rf_norm_grads grads{};
  grads.struct_size = sizeof grads;
  grads.y = dy.data();
  grads.y_stride = dy.stride();
  grads.x = mutable_or_null(results[0]);
  grads.residual = mutable_or_null(results[2]);
  grads.x_stride = grads.residual_stride = ready.x.columns();
  grads.bias = mutable_or_null(results[1]);
  grads.gamma = mutable_or_null(results[3]);
  grads.beta = mutable_or_null(results[4]);
  call_core(rf_norm_backward, &ready.args, &grads);
  return of_wanted(results, inputs_of(call));
}

}  // namespace

at::Tensor norm(const at::Tensor& x, const NormOptions& options) {
  return std::get<0>(dispatch<NormOperator>({options, x}));
}

TORCH_LIBRARY_IMPL(roformer, CPU, library) {
  library.impl("norm", boxed<norm_cpu>());
  library.impl("norm_backward", boxed<backward_cpu>());
}

TORCH_LIBRARY_IMPL(roformer, Meta, library) {
  library.impl("norm", boxed<norm_meta>());
  library.impl("norm_backward", boxed<backward_meta>());
}

}  // namespace rf::ops
