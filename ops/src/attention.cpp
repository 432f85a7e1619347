// roformer::attention_kernel on CPU and Meta tensors: rf_attention_forward and rf_attention_backward behind PyTorch's
// dispatcher; float64 data goes to the loops, float32, bfloat16 and float16 to the tiles. Gradients are in
// attention_autograd.cpp.
#include "rf/ops/attention.h"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include "attention_operator.h"

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

c10::SymInt log_sum_size(const at::Tensor& q, const c10::SymInt& size) {
  return q.scalar_type() == at::kDouble ? c10::SymInt(0) : size;
}

// out [B,T,H,Dv] and log_sum [B,H,T], which the loops ignore.
AttentionResult empty_results(const AttentionCall& call) {
  const at::Tensor& q = call.q;
  const c10::SymInt batch = q.sym_size(0), queries = q.sym_size(1), heads = q.sym_size(2);
  return {at::empty_symint({batch, queries, heads, call.v.sym_size(3)}, q.options()),
          at::empty_symint({log_sum_size(q, batch), heads, queries}, q.options().dtype(at::kFloat))};
}

AttentionResult attention_cpu(const AttentionCall& call) {
  check_call(call);
  auto [out, log_sum] = empty_results(call);
  const AttentionCall ready = made_contiguous(call);
  const rf_attention_args args = core_args(ready, out, log_sum);
  call_core(rf_attention_forward, &args);
  return {out, log_sum};
}

AttentionResult attention_meta(const AttentionCall& call) {
  check_call(call);
  return empty_results(call);
}

AttentionGradients empty_gradients(const Wanted& wanted, const AttentionCall& call) {
  AttentionGradients grads;
  const auto inputs = inputs_of(call);
  const auto places = inputs_of(grads);
  for (size_t i = 0; i < kInputs; ++i) {
    if (!wanted[i]) continue;
    TORCH_CHECK_VALUE(inputs[i]->defined(), "[attention] wanted must name terms that are given, got the absent ",
                      kInputNames[i]);
    *places[i] = at::empty_symint(inputs[i]->sym_sizes(), inputs[i]->options());
  }
  return grads;
}

std::vector<at::Tensor> of_wanted(const AttentionGradients& grads) {
  std::vector<at::Tensor> wanted;
  for (const at::Tensor* grad : inputs_of(grads)) {
    if (grad->defined()) wanted.push_back(*grad);
  }
  return wanted;
}

void check_results(const AttentionBackward& given, const AttentionCall& call) {
  const auto [out, log_sum] = empty_results(call);
  check_result("attention", "grad_out", given.grad_out, out);
  check_result("attention", "out", given.out, out);
  check_result("attention", "log_sum", given.log_sum, log_sum);
}

std::vector<at::Tensor> backward_cpu(const AttentionCall& call, const AttentionBackward& given) {
  check_call(call);
  check_results(given, call);
  const AttentionGradients grads = empty_gradients(given.wanted, call);
  const AttentionCall ready = made_contiguous(call);
  const at::Tensor grad_out = given.grad_out.contiguous(), out = given.out.contiguous(),
                   log_sum = given.log_sum.contiguous();
  const rf_attention_args args = core_args(ready, out, log_sum);
  const rf_attention_grads grad_args = core_grads(grad_out, grads);
  call_core(rf_attention_backward, &args, &grad_args);
  return of_wanted(grads);
}

std::vector<at::Tensor> backward_meta(const AttentionCall& call, const AttentionBackward& given) {
  check_call(call);
  check_results(given, call);
  return of_wanted(empty_gradients(given.wanted, call));
}

// Terms in `dtype`, contiguous except for terms that are read through strides. They are converted outside autograd's
// function, so their gradients return to the original dtypes.
AttentionCall with_terms_of(at::ScalarType dtype, AttentionCall call) {
  check_floating(call);
  const auto inputs = inputs_of(call);
  for (size_t i = kInputs - kTerms; i < kInputs; ++i) {
    if (!inputs[i]->defined()) continue;
    const at::Tensor converted = inputs[i]->to(dtype);
    *inputs[i] = is_scores(call.terms, *inputs[i]) ? converted : converted.contiguous();
  }
  return call;
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
  return {stack.tensor(), stack.tensor(), stack.tensor(), stack.flags<kInputs>()};
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

at::Tensor attention_fused(const AttentionCall& call) {
  const AttentionCall ready = with_terms_of(at::kFloat, call);
  TORCH_CHECK_VALUE(call.q.scalar_type() != at::kDouble,
                    "[attention] q must be float32, bfloat16 or float16 for the fused kernel, got Double");
  return std::get<0>(dispatch_attention(ready));
}

at::Tensor attention_ref(const AttentionCall& call) {
  AttentionCall wide = with_terms_of(at::kDouble, call);
  for (at::Tensor* x : {&wide.q, &wide.k, &wide.v}) *x = x->to(at::kDouble);
  return std::get<0>(dispatch_attention(wide)).to(call.q.scalar_type());
}

TORCH_LIBRARY_IMPL(roformer, CPU, library) {
  library.impl("attention_kernel", torch::CppFunction::makeFromBoxedFunction<attention_entry<attention_cpu>>());
  library.impl("attention_kernel_backward",
               torch::CppFunction::makeFromBoxedFunction<attention_backward_entry<backward_cpu>>());
}

TORCH_LIBRARY_IMPL(roformer, Meta, library) {
  library.impl("attention_kernel", torch::CppFunction::makeFromBoxedFunction<attention_entry<attention_meta>>());
  library.impl("attention_kernel_backward",
               torch::CppFunction::makeFromBoxedFunction<attention_backward_entry<backward_meta>>());
}

}  // namespace rf::ops
