// First gradients of roformer::linear_attention_kernel to q, k, v and the exponents of keys: its backward is a separate
// operator without gradients. Rotations get no gradients, and calls with a state are not differentiable. Forward-mode
// differentiation is not supported.
#include <ATen/ops/arange.h>
#include <ATen/ops/searchsorted.h>

#include <algorithm>

#include "autograd.h"
#include "linear_attention_operator.h"

namespace rf::ops {
namespace {

// The gradient of the exponents c: a weight has the factor e^(c_n - c_m'), m' the last key that query m may see, so the
// gradient of c_n is k_n . dk_n - sum of q_m . dq_m over the queries with m' = n.
at::Tensor exponents_gradient(const LinearAttentionCall& call, const at::Tensor& dq, const at::Tensor& dk) {
  const int64_t queries = call.q.size(1), keys = call.k.size(1), key_heads = call.k.size(2);
  const at::ScalarType dtype = call.key_exponents_BSH.scalar_type();
  const at::Tensor of_queries_BTHk =
      (call.q.to(dtype) * dq).sum(-1).unflatten(-1, {key_heads, call.q.size(2) / key_heads}).sum(-1);
  at::Tensor gradient_BSHk = (call.k.to(dtype) * dk).sum(-1);
  if (!call.cu_seqlens.defined()) {
    const int64_t pairs = std::min(queries, keys);
    gradient_BSHk.narrow(1, keys - pairs, pairs).sub_(of_queries_BTHk.narrow(1, queries - pairs, pairs));
    return gradient_BSHk;
  }
  // Queries and keys of a sequence end together.
  const at::Tensor cu_seqlens_q = call.cu_seqlens.q.to(at::kLong), cu_seqlens_k = call.cu_seqlens.k.to(at::kLong);
  const at::Tensor of_query = at::arange(queries, cu_seqlens_q.options());
  const at::Tensor sequence = at::searchsorted(cu_seqlens_q, of_query, /*out_int32=*/false, /*right=*/true) - 1;
  const at::Tensor key =
      of_query - cu_seqlens_q.index_select(0, sequence + 1) + cu_seqlens_k.index_select(0, sequence + 1);
  const at::Tensor sees = key.ge(cu_seqlens_k.index_select(0, sequence)).view({1, queries, 1});
  if (keys == 0) return gradient_BSHk;
  gradient_BSHk.index_add_(1, key.clamp_min(0), of_queries_BTHk.masked_fill(sees.logical_not(), 0), -1);
  return gradient_BSHk;
}

struct LinearAttentionWithGradients : LinearAttentionOperator {
  static constexpr const char *kWhere = "linear_attention", *kHint = "kernel explicit has derivatives of any order";
  static constexpr std::array kInputNames = {"q", "k", "v", "key_exponents"};
  static constexpr size_t kKept = 2;

  static auto inputs(const Call& call) { return std::array{&call.q, &call.k, &call.v, &call.key_exponents_BSH}; }
  static variable_list backward(const BackwardArguments<2, 4>& given, const Call& call) {
    const auto& [q, k, v, exponents] = given.wanted;
    const Backward computed{given.grad, given.results, {q || exponents, k || exponents, v}};
    variable_list grads = in_places(computed.wanted, dispatch_backward<LinearAttentionWithGradients>(computed, call));
    grads.push_back(exponents ? exponents_gradient(call, grads[0], grads[1]) : at::Tensor());
    return grads;
  }
};

LinearAttentionOperator::Results linear_attention_autograd(const LinearAttentionCall& call) {
  for (const auto& [x, name] : {std::pair{&call.query.cos, "query_cos"},
                                {&call.query.sin, "query_sin"},
                                {&call.key.cos, "key_cos"},
                                {&call.key.sin, "key_sin"},
                                {&call.state, "state"},
                                {&call.state_exponents, "state_exponents"}}) {
    check_no_tangent("linear_attention", name, *x);
    check_no_gradient("linear_attention", name, *x);
  }
  const auto inputs = LinearAttentionWithGradients::inputs(call);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !call.state.defined() ||
          std::none_of(inputs.begin(), inputs.end(), [](auto* x) { return x->defined() && needs_gradient(*x); }),
      "[linear_attention] q, k and v must not require grad with a state, got tensors that do. Hint: torch.no_grad()");
  return with_gradients<LinearAttentionWithGradients>(call);
}

}  // namespace

TORCH_LIBRARY_IMPL(roformer, Autograd, library) {
  library.impl("linear_attention_kernel", boxed<linear_attention_autograd>());
}

}  // namespace rf::ops
