// roformer::linear_attention_kernel and its backward: schemas and arguments.
#pragma once

#include <tuple>

#include "dispatcher.h"
#include "rf/ops/linear_attention.h"

namespace rf::ops {

// denominators [B,H,T] are for the backward. state_after: empty without a state. wanted: flags of q, k and v; the
// result holds the wanted gradients.
inline constexpr const char* kLinearAttentionSchema =
    "linear_attention_kernel(Tensor q, Tensor k, Tensor v, *, str feature_map, str direction, "
    "str denominator=\"plain\", Tensor? query_cos=None, Tensor? query_sin=None, Tensor? key_cos=None, "
    "Tensor? key_sin=None, str layout=\"pairs\", Tensor? key_mask=None, float eps=0.0, Tensor? key_exponents=None, "
    "Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, Tensor? state=None, Tensor? state_exponents=None) -> "
    "(Tensor out, Tensor denominators, Tensor state_after)";
inline constexpr const char* kLinearAttentionBackwardSchema =
    "linear_attention_kernel_backward(Tensor grad_out, Tensor out, Tensor denominators, bool[3] wanted, Tensor q, "
    "Tensor k, Tensor v, *, str feature_map, str direction, str denominator=\"plain\", Tensor? query_cos=None, "
    "Tensor? query_sin=None, Tensor? key_cos=None, Tensor? key_sin=None, str layout=\"pairs\", Tensor? key_mask=None, "
    "float eps=0.0, Tensor? key_exponents=None, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None) -> Tensor[]";

void for_each_argument(ArgumentsOf<LinearAttentionCall> auto& call, const auto& visit) {
  visit(call.q), visit(call.k), visit(call.v);
  visit(call.feature_map), visit(call.direction), visit(call.denominator);
  for (auto* x : {&call.query.cos, &call.query.sin, &call.key.cos, &call.key.sin}) visit(*x);
  visit(call.layout), visit(call.key_mask_BS), visit(call.eps), visit(call.key_exponents_BSH);
  visit(call.cu_seqlens.q), visit(call.cu_seqlens.k);
  visit(call.state), visit(call.state_exponents);  // of the forward
}

struct LinearAttentionOperator {
  using Call = LinearAttentionCall;
  using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;  // out, denominators, state_after
  using Backward = BackwardArguments<2, 3>;                        // with out and denominators
  static constexpr const char *kName = "roformer::linear_attention_kernel",
                              *kBackwardName = "roformer::linear_attention_kernel_backward";
};

}  // namespace rf::ops
