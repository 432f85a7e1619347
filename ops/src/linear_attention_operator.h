// roformer::linear_attention_kernel and its backward: schemas, a call's arguments together, and calls through the
// dispatcher.
#pragma once

#include <array>
#include <tuple>
#include <utility>
#include <vector>

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

struct LinearAttentionCall : LinearAttentionOptions {
  at::Tensor q, k, v;
  at::Tensor state, state_exponents;  // of the forward
};

using LinearAttentionResult = std::tuple<at::Tensor, at::Tensor, at::Tensor>;  // out, denominators, state_after
using LinearAttentionWanted = std::array<bool, 3>;

// The backward's arguments before the forward's arguments.
struct LinearAttentionBackward {
  at::Tensor grad_out, out, denominators;
  LinearAttentionWanted wanted{};
};

// With the state and its exponents, which are the forward's last arguments.
LinearAttentionCall read_linear_call(StackReader& stack, bool is_forward);
LinearAttentionBackward read_linear_backward(StackReader& stack);

// Kernels for the dispatcher.
template <LinearAttentionResult (*kKernel)(const LinearAttentionCall&)>
void linear_attention_entry(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  StackReader reader(op, *stack);
  auto [out, denominators, state_after] = kKernel(read_linear_call(reader, true));
  reader.finish(std::move(out), std::move(denominators), std::move(state_after));
}
template <std::vector<at::Tensor> (*kKernel)(const LinearAttentionCall&, const LinearAttentionBackward&)>
void linear_attention_backward_entry(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  StackReader reader(op, *stack);
  const LinearAttentionBackward given = read_linear_backward(reader);
  reader.finish(kKernel(read_linear_call(reader, false), given));
}

LinearAttentionResult dispatch_linear_attention(const LinearAttentionCall& call);
std::vector<at::Tensor> dispatch_linear_attention_backward(const LinearAttentionCall& call,
                                                           const LinearAttentionBackward& given);

}  // namespace rf::ops
