// First gradients of the operators of rf/ops/rows.h: each backward is a separate operator without gradients.
// Forward-mode differentiation is not supported.
//
//   linear with an activation keeps the input of the activation for the backward: the linear layer, then GELU
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "autograd.h"
#include "row_operators.h"

namespace rf::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_first_derivative(const char* where) {
  TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(), "[", where,
                              "] create_graph must be false: the kernel has first derivatives only, got true. Hint: "
                              "RF_KERNEL=ref, and float64, take torch's own operators in models, which have more");
}

bool is_trained(const OptionalTensor& x) { return x && needs_gradient(*x); }

// The same with gradients disabled, as inside the forward of a function.
bool requires_grad(const OptionalTensor& x) { return x && x->requires_grad(); }

OptionalTensor optional(const at::Tensor& x) { return x.defined() ? OptionalTensor(x) : std::nullopt; }

// The wanted gradients in their places, `size` in all.
template <size_t kCount>
variable_list in_places(const std::array<bool, kCount>& wanted, const std::vector<at::Tensor>& grads, size_t size) {
  variable_list result(size);
  size_t next = 0;
  for (size_t i = 0; i < kCount; ++i) {
    if (wanted[i]) result[i] = grads[next++];
  }
  return result;
}

struct NormFunction : torch::autograd::Function<NormFunction> {
  // The tensors of the call as separate arguments, so that autograd finds them.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const OptionalTensor& bias,
                            const OptionalTensor& residual, const OptionalTensor& gamma, const OptionalTensor& beta,
                            const NormCall& call) {
    ctx->save_for_backward({x, bias.value_or(at::Tensor()), residual.value_or(at::Tensor()),
                            gamma.value_or(at::Tensor()), beta.value_or(at::Tensor())});
    auto& data = ctx->saved_data;
    data["kind"] = call.kind;
    data["eps"] = call.eps;
    data["dropout"] = call.dropout;
    data["seed"] = call.seed;
    data["stream"] = call.stream;
    data["wanted"] = std::vector<bool>{x.requires_grad(), requires_grad(bias), requires_grad(residual),
                                       requires_grad(gamma), requires_grad(beta)};
    const at::AutoDispatchBelowADInplaceOrView guard;
    return dispatch_norm(call);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_first_derivative("norm");
    const variable_list saved = ctx->get_saved_variables();
    auto& data = ctx->saved_data;
    const NormCall call{{.bias = optional(saved[1]),
                         .residual = optional(saved[2]),
                         .gamma = optional(saved[3]),
                         .beta = optional(saved[4]),
                         .kind = data["kind"].toStringRef(),
                         .eps = data["eps"].toDouble(),
                         .dropout = data["dropout"].toDouble(),
                         .seed = data["seed"].toSymInt(),
                         .stream = data["stream"].toSymInt()},
                        saved[0]};
    const auto wanted = flags_of<5>(data["wanted"].toBoolList());
    return in_places(wanted, dispatch_norm_backward(call, grads[0], wanted), 6);
  }
};

struct GeluFunction : torch::autograd::Function<GeluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const OptionalTensor& bias,
                            std::string_view form) {
    ctx->save_for_backward({x, bias.value_or(at::Tensor())});
    ctx->saved_data["form"] = std::string(form);
    ctx->saved_data["x"] = x.requires_grad();
    ctx->saved_data["bias"] = requires_grad(bias);
    const at::AutoDispatchBelowADInplaceOrView guard;
    return gelu(x, bias, form);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_first_derivative("gelu");
    const variable_list saved = ctx->get_saved_variables();
    auto& data = ctx->saved_data;
    const std::array<bool, 2> wanted = {data["x"].toBool(), data["bias"].toBool()};
    const std::string form = data["form"].toStringRef();
    return in_places(wanted, dispatch_gelu_backward(grads[0], wanted, saved[0], optional(saved[1]), form), 3);
  }
};

// A tensor's shape and dtype without its memory.
at::Tensor without_numbers(const at::Tensor& x) { return at::empty({}, x.options()).expand_symint(x.sym_sizes()); }

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const OptionalTensor& bias) {
    ctx->save_for_backward(
        {weight.requires_grad() ? x : without_numbers(x), x.requires_grad() ? weight : without_numbers(weight)});
    ctx->saved_data["wanted"] = std::vector<bool>{x.requires_grad(), weight.requires_grad(), requires_grad(bias)};
    if (bias) ctx->saved_data["bias"] = bias->scalar_type();
    const at::AutoDispatchBelowADInplaceOrView guard;
    return linear(x, weight, bias, "none");
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_first_derivative("linear");
    const variable_list saved = ctx->get_saved_variables();
    const auto wanted = flags_of<3>(ctx->saved_data["wanted"].toBoolList());
    variable_list result = in_places(wanted, dispatch_linear_backward(grads[0], wanted, saved[0], saved[1]), 3);
    if (wanted[2]) result[2] = result[2].to(ctx->saved_data["bias"].toScalarType());
    return result;
  }
};

at::Tensor norm_autograd(const NormCall& call) {
  check_no_tangent("norm", "x", call.x);
  check_no_tangent("norm", "bias", call.bias);
  check_no_tangent("norm", "residual", call.residual);
  check_no_tangent("norm", "gamma", call.gamma);
  check_no_tangent("norm", "beta", call.beta);
  if (needs_gradient(call.x) || is_trained(call.bias) || is_trained(call.residual) || is_trained(call.gamma) ||
      is_trained(call.beta)) {
    return NormFunction::apply(call.x, call.bias, call.residual, call.gamma, call.beta, call);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return dispatch_norm(call);
}

at::Tensor gelu_autograd(const at::Tensor& x, const OptionalTensor& bias, std::string_view form) {
  check_no_tangent("gelu", "x", x);
  check_no_tangent("gelu", "bias", bias);
  if (needs_gradient(x) || is_trained(bias)) return GeluFunction::apply(x, bias, form);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return gelu(x, bias, form);
}

at::Tensor linear_autograd(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias,
                           std::string_view activation) {
  check_no_tangent("linear", "x", x);
  check_no_tangent("linear", "weight", weight);
  check_no_tangent("linear", "bias", bias);
  if (needs_gradient(x) || needs_gradient(weight) || is_trained(bias)) {
    const at::Tensor y = LinearFunction::apply(x, weight, bias);
    if (activation == "gelu_erf") return gelu(y, std::nullopt, "erf");
    if (activation == "gelu_tanh") return gelu(y, std::nullopt, "tanh");
    if (activation == "none") return y;
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return linear(x, weight, bias, activation);
}

}  // namespace

TORCH_LIBRARY_IMPL(roformer, Autograd, library) {
  library.impl("norm", NormKernel<norm_autograd>::run);
  library.impl("gelu", gelu_autograd);
  library.impl("linear", linear_autograd);
}

}  // namespace rf::ops
