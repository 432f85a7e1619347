// The call of attention on the dispatcher's stack, in the order of the schema (attention_operator.h).
#include "attention_operator.h"

#include <ATen/core/List.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <utility>

namespace rf::ops {
namespace {

constexpr const char* kArguments =
    "Tensor q, Tensor k, Tensor v, Tensor query_positions, Tensor key_positions, Tensor? mask, Tensor?[] terms, "
    "int[] ranges, *, str layout=\"pairs\", float? scale=None, int left=-1, int right=-1, float dropout=0.0, "
    "SymInt seed=0, SymInt stream=0, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, "
    "Tensor? prefix=None";

void read_terms(AttentionCall& call, const c10::IValue& given_terms, const c10::IValue& given_ranges) {
  const auto terms = given_terms.toOptionalTensorVector();
  const std::vector<int64_t> ranges = given_ranges.toIntVector();
  TORCH_CHECK_VALUE(terms.size() == kTerms && ranges.size() == kRanges, "[attention] terms and ranges must have ",
                    kTerms, " and ", kRanges, " entries, got ", terms.size(), " and ", ranges.size());
  const auto inputs = inputs_of(call);
  for (size_t i = 0; i < kTerms; ++i) *inputs[kInputs - kTerms + i] = terms[i].value_or(at::Tensor());
  set_ranges(call.terms, ranges);
}

void push_call(torch::jit::Stack& stack, const AttentionCall& call) {
  c10::List<std::optional<at::Tensor>> terms;
  const auto inputs = inputs_of(call);
  for (size_t i = kInputs - kTerms; i < kInputs; ++i) {
    terms.push_back(inputs[i]->defined() ? std::optional(*inputs[i]) : std::nullopt);
  }
  torch::jit::push(stack, call.q, call.k, call.v, call.query_positions, call.key_positions, none_or(call.mask),
                   std::move(terms), ranges_of(call.terms), call.terms.layout, call.terms.scale, call.window.left,
                   call.window.right, call.dropout.p, call.dropout.seed, call.dropout.stream,
                   none_or(call.packed.cu_seqlens_q), none_or(call.packed.cu_seqlens_k), none_or(call.window.prefix));
}

}  // namespace

std::string attention_schema() {
  return c10::str("attention_kernel(", kArguments, ") -> (Tensor out, Tensor log_sum)");
}

std::string attention_backward_schema() {
  return c10::str("attention_kernel_backward(Tensor grad_out, Tensor out, Tensor log_sum, bool[", kInputs, "] wanted, ",
                  kArguments, ") -> Tensor[]");
}

AttentionCall read_call(StackReader& stack) {
  AttentionCall call;
  for (at::Tensor* x : {&call.q, &call.k, &call.v, &call.query_positions, &call.key_positions}) *x = stack.tensor();
  call.mask = stack.optional_tensor();
  const c10::IValue terms = stack.next(), ranges = stack.next();
  read_terms(call, terms, ranges);
  call.terms.layout = stack.text();
  call.terms.scale = stack.next().toOptional<double>();
  call.window.left = stack.integer(), call.window.right = stack.integer();
  call.dropout.p = stack.number();
  call.dropout.seed = stack.next().toSymInt(), call.dropout.stream = stack.next().toSymInt();
  call.packed.cu_seqlens_q = stack.optional_tensor(), call.packed.cu_seqlens_k = stack.optional_tensor();
  call.window.prefix = stack.optional_tensor();
  return call;
}

AttentionBackward read_backward(StackReader& stack) {
  AttentionBackward given{stack.tensor(), stack.tensor(), stack.tensor(), {}};
  stack.flags(given.wanted);
  return given;
}

AttentionResult dispatch_attention(const AttentionCall& call) {
  static const c10::OperatorHandle op = find_schema("roformer::attention_kernel");
  torch::jit::Stack stack;
  push_call(stack, call);
  op.callBoxed(stack);
  return {stack[0].toTensor(), stack[1].toTensor()};
}

std::vector<at::Tensor> dispatch_attention_backward(const AttentionCall& call, const AttentionBackward& given) {
  static const c10::OperatorHandle op = find_schema("roformer::attention_kernel_backward");
  torch::jit::Stack stack;
  torch::jit::push(stack, given.grad_out, given.out, given.log_sum, list_of(given.wanted));
  push_call(stack, call);
  op.callBoxed(stack);
  return stack[0].toTensorVector();
}

}  // namespace rf::ops
