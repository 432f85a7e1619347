// First gradients of roformer::linear_attention_kernel to q, k, v and the exponents of keys: its backward is a separate
// operator without gradients. Rotations get no gradients, and calls with a state are not differentiable. Forward-mode
// differentiation is not supported.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/searchsorted.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "autograd.h"
#include "linear_attention_operator.h"

namespace rf::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum Saved : size_t {
  kQ,
  kK,
  kV,
  kQueryCos,
  kQuerySin,
  kKeyCos,
  kKeySin,
  kKeyMask,
  kKeyExponents,
  kEndsQ,
  kEndsK,
  kOut,
  kDenominators
};

void save_call(AutogradContext* ctx, const LinearAttentionCall& call, const LinearAttentionResult& result) {
  ctx->save_for_backward({call.q, call.k, call.v, call.query.cos, call.query.sin, call.key.cos, call.key.sin,
                          call.key_mask_BS, call.key_exponents_BSH, call.packed.cu_seqlens_q, call.packed.cu_seqlens_k,
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
  return {{.feature_map = data["feature_map"].toStringRef(),
           .direction = data["direction"].toStringRef(),
           .denominator = data["denominator"].toStringRef(),
           .query = {saved[kQueryCos], saved[kQuerySin]},
           .key = {saved[kKeyCos], saved[kKeySin]},
           .layout = data["layout"].toStringRef(),
           .key_mask_BS = saved[kKeyMask],
           .eps = data["eps"].toDouble(),
           .key_exponents_BSH = saved[kKeyExponents],
           .packed = {saved[kEndsQ], saved[kEndsK]}},
          saved[kQ],
          saved[kK],
          saved[kV],
          {},
          {}};
}

// The gradient of the exponents c: a weight has the factor e^(c_n - c_m'), m' the last key that query m may see, so the
// gradient of c_n is k_n . dk_n - sum of q_m . dq_m over the queries with m' = n.
at::Tensor exponents_gradient(const LinearAttentionCall& call, const at::Tensor& dq, const at::Tensor& dk) {
  const int64_t queries = call.q.size(1), keys = call.k.size(1), key_heads = call.k.size(2);
  const at::ScalarType dtype = call.key_exponents_BSH.scalar_type();
  const at::Tensor of_queries_BTHk =
      (call.q.to(dtype) * dq).sum(-1).unflatten(-1, {key_heads, call.q.size(2) / key_heads}).sum(-1);
  at::Tensor gradient_BSHk = (call.k.to(dtype) * dk).sum(-1);
  if (!call.packed.defined()) {
    const int64_t pairs = std::min(queries, keys);
    gradient_BSHk.narrow(1, keys - pairs, pairs).sub_(of_queries_BTHk.narrow(1, queries - pairs, pairs));
    return gradient_BSHk;
  }
  // Queries and keys of a sequence end together.
  const at::Tensor ends_q = call.packed.cu_seqlens_q.to(at::kLong), ends_k = call.packed.cu_seqlens_k.to(at::kLong);
  const at::Tensor of_query = at::arange(queries, ends_q.options());
  const at::Tensor sequence = at::searchsorted(ends_q, of_query, /*out_int32=*/false, /*right=*/true) - 1;
  const at::Tensor key = of_query - ends_q.index_select(0, sequence + 1) + ends_k.index_select(0, sequence + 1);
  const at::Tensor sees = key.ge(ends_k.index_select(0, sequence)).view({1, queries, 1});
  if (keys == 0) return gradient_BSHk;
  gradient_BSHk.index_add_(1, key.clamp_min(0), of_queries_BTHk.masked_fill(sees.logical_not(), 0), -1);
  return gradient_BSHk;
}

// Arguments of LinearAttentionFunction.
constexpr size_t kOfValues = 2, kOfExponents = 3;

struct LinearAttentionFunction : torch::autograd::Function<LinearAttentionFunction> {
  // The tensors repeat those in the call; autograd finds them among the arguments.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& /*q*/, const at::Tensor& /*k*/,
                               const at::Tensor& /*v*/, const at::Tensor& /*key_exponents*/,
                               const LinearAttentionCall& call) {
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
    const bool of_exponents = ctx->needs_input_grad(kOfExponents);
    for (size_t i = 0; i < given.wanted.size(); ++i) {
      given.wanted[i] = ctx->needs_input_grad(i) || (of_exponents && i < kOfValues);
    }
    const LinearAttentionCall call = saved_call(ctx, saved);
    const std::vector<at::Tensor> grads = dispatch_linear_attention_backward(call, given);
    variable_list result;
    size_t next = 0;
    for (const bool is_wanted : given.wanted) result.push_back(is_wanted ? grads[next++] : at::Tensor());
    result.push_back(of_exponents ? exponents_gradient(call, result[0], result[1]) : at::Tensor());
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
  check_no_tangent("linear_attention", "key_exponents", call.key_exponents_BSH);
  trained = trained || needs_gradient(call.key_exponents_BSH);
  for (const auto& [x, name] : {std::pair{&call.query.cos, "query_cos"},
                                {&call.query.sin, "query_sin"},
                                {&call.key.cos, "key_cos"},
                                {&call.key.sin, "key_sin"},
                                {&call.state, "state"},
                                {&call.state_exponents, "state_exponents"}}) {
    check_no_tangent("linear_attention", name, *x);
    check_no_gradient("linear_attention", name, *x);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(!(trained && call.state.defined()),
                              "[linear_attention] q, k and v must not require grad with a state, got tensors that "
                              "do. Hint: torch.no_grad()");
  if (trained) {
    // An argument must be a tensor.
    const at::Tensor exponents =
        call.key_exponents_BSH.defined() ? call.key_exponents_BSH : at::empty({0}, call.q.options());
    const variable_list results = LinearAttentionFunction::apply(call.q, call.k, call.v, exponents, call);
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
