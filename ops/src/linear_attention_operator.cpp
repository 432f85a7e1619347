// The call of linear attention on the dispatcher's stack, in the order of the schemas (linear_attention_operator.h).
#include "linear_attention_operator.h"

namespace rf::ops {
namespace {

MaybeTensor read_maybe(StackReader& stack) { return stack.next().toOptional<at::Tensor>(); }

void push_call(torch::jit::Stack& stack, const LinearAttentionCall& call) {
  torch::jit::push(stack, call.q, call.k, call.v, call.feature_map, call.direction, call.denominator, call.query_cos,
                   call.query_sin, call.key_cos, call.key_sin, call.layout, call.key_mask, call.eps, call.key_exponents,
                   call.cu_seqlens_q, call.cu_seqlens_k);
}

}  // namespace

LinearAttentionCall read_linear_call(StackReader& stack, bool is_forward) {
  LinearAttentionCall call;
  for (at::Tensor* x : {&call.q, &call.k, &call.v}) *x = stack.tensor();
  for (std::string* x : {&call.feature_map, &call.direction, &call.denominator}) *x = stack.text();
  for (MaybeTensor* x : {&call.query_cos, &call.query_sin, &call.key_cos, &call.key_sin}) *x = read_maybe(stack);
  call.layout = stack.text();
  call.key_mask = read_maybe(stack);
  call.eps = stack.number();
  for (MaybeTensor* x : {&call.key_exponents, &call.cu_seqlens_q, &call.cu_seqlens_k}) *x = read_maybe(stack);
  if (!is_forward) return call;
  for (MaybeTensor* x : {&call.state, &call.state_exponents}) *x = read_maybe(stack);
  return call;
}

LinearAttentionBackward read_linear_backward(StackReader& stack) {
  LinearAttentionBackward given{stack.tensor(), stack.tensor(), stack.tensor(), {}};
  stack.flags(given.wanted);
  return given;
}

LinearAttentionResult dispatch_linear_attention(const LinearAttentionCall& call) {
  static const c10::OperatorHandle op = find_schema("roformer::linear_attention_kernel");
  torch::jit::Stack stack;
  push_call(stack, call);
  torch::jit::push(stack, call.state, call.state_exponents);
  op.callBoxed(stack);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

std::vector<at::Tensor> dispatch_linear_attention_backward(const LinearAttentionCall& call,
                                                           const LinearAttentionBackward& given) {
  static const c10::OperatorHandle op = find_schema("roformer::linear_attention_kernel_backward");
  torch::jit::Stack stack;
  torch::jit::push(stack, given.grad_out, given.out, given.denominators, list_of(given.wanted));
  push_call(stack, call);
  op.callBoxed(stack);
  return stack[0].toTensorVector();
}

}  // namespace rf::ops
