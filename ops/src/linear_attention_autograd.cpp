// First gradients of roformer::linear_attention_kernel to q, k and v: its backward is an operator of its own, which has
// no gradients. Rotations have none either, and nothing has where there is a state. There is no forward-mode
// differentiation.
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "autograd.h"
#include "linear_attention_operator.h"

namespace rf::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum Saved : size_t { kQ, kK, kV, kQueryCos, kQuerySin, kKeyCos, kKeySin, kKeyMask, kOut, kDenominators };

at::Tensor or_undefined(const MaybeTensor& x) {
  return x.value_or(at::Tensor());
}
MaybeTensor if_defined(const at::Tensor& x) {
  return x.defined() ? MaybeTensor(x) : std::nullopt;
}

void save_call(AutogradContext* ctx, const LinearAttentionCall& call, const LinearAttentionResult& result) {
  ctx->save_for_backward({call.q, call.k, call.v, or_undefined(call.query_cos), or_undefined(call.query_sin),
                          or_undefined(call.key_cos), or_undefined(call.key_sin), or_undefined(call.key_mask),
                          std::get<0>(result), std::get<1>(result)});
  auto& data = ctx->saved_data;
  data["feature_map"] = call.feature_map;
  data["direction"] = call.direction;
  data["denominator"] = call.denominator;
  data["layout"] = call.layout;
  data["eps"] = call.eps;
}

LinearAttentionCall saved_call(AutogradContext* ctx, const variable_list& saved) {
  auto& data = ctx->saved_data;
  return {.q = saved[kQ],
          .k = saved[kK],
          .v = saved[kV],
          .feature_map = data["feature_map"].toStringRef(),
          .direction = data["direction"].toStringRef(),
          .denominator = data["denominator"].toStringRef(),
          .query_cos = if_defined(saved[kQueryCos]),
          .query_sin = if_defined(saved[kQuerySin]),
          .key_cos = if_defined(saved[kKeyCos]),
          .key_sin = if_defined(saved[kKeySin]),
          .layout = data["layout"].toStringRef(),
          .key_mask = if_defined(saved[kKeyMask]),
          .eps = data["eps"].toDouble(),
          .state = std::nullopt};
}

struct LinearAttentionFunction : torch::autograd::Function<LinearAttentionFunction> {
  // q, k and v are those of the call; autograd finds them among the arguments.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& /*q*/, const at::Tensor& /*k*/,
                               const at::Tensor& /*v*/, const LinearAttentionCall& call) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const LinearAttentionResult result = dispatch_linear_attention(call);
    save_call(ctx, call, result);
    ctx->mark_non_differentiable({std::get<1>(result), std::get<2>(result)});
    return {std::get<0>(result), std::get<1>(result), std::get<2>(result)};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads_of_results) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                                "[linear_attention] create_graph must be false: the kernel and the reference have "
                                "first derivatives only, got true. Hint: kernel explicit has derivatives of any order");
    const variable_list saved = ctx->get_saved_variables();
    LinearAttentionBackward given{grads_of_results[0], saved[kOut], saved[kDenominators], {}};
    for (size_t i = 0; i < given.wanted.size(); ++i) given.wanted[i] = ctx->needs_input_grad(i);
    const std::vector<at::Tensor> grads = dispatch_linear_attention_backward(saved_call(ctx, saved), given);
    variable_list result;
    size_t next = 0;
    for (const bool is_wanted : given.wanted) result.push_back(is_wanted ? grads[next++] : at::Tensor());
    result.emplace_back();  // of the call
    return result;
  }
};

LinearAttentionResult linear_attention_autograd(const LinearAttentionCall& call) {
  bool trained = false;
  for (const auto& [x, name] : {std::pair{&call.q, "q"}, {&call.k, "k"}, {&call.v, "v"}}) {
    check_no_tangent("linear_attention", name, *x);
    trained = trained || needs_gradient(*x);
  }
  for (const auto& [x, name] : {std::pair{&call.query_cos, "query_cos"},
                                {&call.query_sin, "query_sin"},
                                {&call.key_cos, "key_cos"},
                                {&call.key_sin, "key_sin"},
                                {&call.state, "state"}}) {
    check_no_tangent("linear_attention", name, *x);
    check_no_gradient("linear_attention", name, *x);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(!(trained && call.state),
                              "[linear_attention] q, k and v must not require grad with a state, got tensors that "
                              "do. Hint: torch.no_grad()");
  if (trained) {
    const variable_list results = LinearAttentionFunction::apply(call.q, call.k, call.v, call);
    return {results[0], results[1], results[2]};
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return dispatch_linear_attention(call);
}

}  // namespace

TORCH_LIBRARY_IMPL(roformer, Autograd, library) {
  library.impl("linear_attention_kernel",
               torch::CppFunction::makeFromBoxedFunction<linear_attention_entry<linear_attention_autograd>>());
}

}  // namespace rf::ops
