// First gradients of the operators of rf/ops/rows.h: each backward is a separate operator without gradients.
// Forward-mode differentiation is not supported.
//
//   linear with an activation keeps the input of the activation for the backward: the linear layer, then GELU
#include "autograd.h"
#include "row_operators.h"

namespace rf::ops {
namespace {

constexpr const char* kRowsHint = "RF_KERNEL=ref, and float64, take torch's own operators in models, which have more";

struct NormWithGradients : NormOperator {
  static constexpr const char *kWhere = "norm", *kHint = kRowsHint;
  static constexpr std::array kInputNames = {"x", "bias", "residual", "gamma", "beta"};
  static constexpr size_t kKept = 0;
  static auto inputs(const Call& call) {
    return std::array{&call.x, &call.bias, &call.residual, &call.gamma, &call.beta};
  }
};

struct GeluWithGradients : GeluOperator {
  static constexpr const char *kWhere = "gelu", *kHint = kRowsHint;
  static constexpr std::array kInputNames = {"x", "bias"};
  static constexpr size_t kKept = 0;
  static auto inputs(const Call& call) { return std::array{&call.x, &call.bias}; }
};

bool is_trained(const OptionalTensor& x) { return x && needs_gradient(*x); }

// A tensor's shape and dtype without its memory.
at::Tensor without_numbers(const at::Tensor& x) { return at::empty({}, x.options()).expand_symint(x.sym_sizes()); }

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const OptionalTensor& bias) {
    ctx->save_for_backward(
        {weight.requires_grad() ? x : without_numbers(x), x.requires_grad() ? weight : without_numbers(weight)});
    ctx->saved_data["wanted"] =
        std::vector<bool>{x.requires_grad(), weight.requires_grad(), bias && bias->requires_grad()};
    if (bias) ctx->saved_data["bias"] = bias->scalar_type();
    const at::AutoDispatchBelowADInplaceOrView guard;
    return linear(x, weight, bias, "none");
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_first_derivative("linear", kRowsHint);
    const variable_list saved = ctx->get_saved_variables();
    const auto wanted = flags_of<3>(ctx->saved_data["wanted"].toBoolList());
    variable_list result = in_places(wanted, dispatch_linear_backward(grads[0], wanted, saved[0], saved[1]));
    if (wanted[2]) result[2] = result[2].to(ctx->saved_data["bias"].toScalarType());
    return result;
  }
};

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
  library.impl("norm", boxed<with_gradients<NormWithGradients>>());
  library.impl("gelu", boxed<with_gradients<GeluWithGradients>>());
  library.impl("linear", linear_autograd);
}

}  // namespace rf::ops
