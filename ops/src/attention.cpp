// roformer::attention_kernel on CPU and Meta tensors: rf_attention_forward and rf_attention_backward behind PyTorch's
// dispatcher; float64 data goes to the loops, float32, bfloat16 and float16 to the tiles. Gradients are in
// attention_autograd.cpp.
#include "rf/ops/attention.h"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include "attention_operator.h"
#include "qkv_call.h"

namespace rf::ops {
namespace {

constexpr const char* kArguments =
    "Tensor q, Tensor k, Tensor v, Tensor query_positions, Tensor key_positions, Tensor? mask, Tensor?[] terms, "
    "int[] ranges, *, str layout=\"pairs\", float? scale=None, int left=-1, int right=-1, float dropout=0.0, "
    "SymInt seed=0, SymInt stream=0, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, "
    "Tensor? prefix=None";

AttentionOperator::Results attention_cpu(const AttentionCall& call) {
  check_call(call);
  const auto [out, log_sum] = empty_out(call);
  const AttentionCall ready = made_contiguous(call);
  const rf_attention_args args = core_args(ready, out, log_sum);
  call_core(rf_attention_forward, &args);
  return {out, log_sum};
}

AttentionOperator::Results attention_meta(const AttentionCall& call) {
  check_call(call);
  return empty_out(call);
}

// The checked backward's gradients in a call, undefined where not wanted.
AttentionCall empty_gradients(const AttentionOperator::Backward& given, const AttentionCall& call) {
  check_call(call);
  check_results("attention", "log_sum", given, call);
  AttentionCall grads;
  const auto inputs = inputs_of(call);
  const auto places = inputs_of(grads);
  for (size_t i = 0; i < kInputs; ++i) {
    if (!given.wanted[i]) continue;
    TORCH_CHECK_VALUE(inputs[i]->defined(), "[attention] wanted must name terms that are given, got the absent ",
                      kInputNames[i]);
    *places[i] = at::empty_symint(inputs[i]->sym_sizes(), inputs[i]->options());
  }
  return grads;
}

std::vector<at::Tensor> of_wanted(const AttentionCall& grads) {
  std::vector<at::Tensor> wanted;
  for (const at::Tensor* grad : inputs_of(grads)) wanted.push_back(*grad);
  return defined_of(std::move(wanted));
}

std::vector<at::Tensor> backward_cpu(const AttentionOperator::Backward& given, const AttentionCall& call) {
  const AttentionCall grads = empty_gradients(given, call), ready = made_contiguous(call);
  const at::Tensor grad_out = given.grad.contiguous(), out = given.results[0].contiguous(),
                   log_sum = given.results[1].contiguous();
  const rf_attention_args args = core_args(ready, out, log_sum);
  const rf_attention_grads grad_args = core_grads(grad_out, grads);
  call_core(rf_attention_backward, &args, &grad_args);
  return of_wanted(grads);
}

std::vector<at::Tensor> backward_meta(const AttentionOperator::Backward& given, const AttentionCall& call) {
  return of_wanted(empty_gradients(given, call));
}

// Terms in `dtype`, contiguous except for terms that are read through strides. They are converted outside autograd's
// function, so their gradients return to the original dtypes.
AttentionCall with_terms_of(at::ScalarType dtype, AttentionCall call) {
  check_floating(call);
  for (at::Tensor* term : tensors_of(call.terms)) {
    if (!term->defined()) continue;
    const at::Tensor converted = term->to(dtype);
    *term = is_scores(call.terms, *term) ? converted : converted.contiguous();
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

at::Tensor attention_fused(const AttentionCall& call) {
  const AttentionCall ready = with_terms_of(at::kFloat, call);
  TORCH_CHECK_VALUE(call.q.scalar_type() != at::kDouble,
                    "[attention] q must be float32, bfloat16 or float16 for the fused kernel, got Double");
  return std::get<0>(dispatch<AttentionOperator>(ready));
}

at::Tensor attention_ref(const AttentionCall& call) {
  AttentionCall wide = with_terms_of(at::kDouble, call);
  for (at::Tensor* x : {&wide.q, &wide.k, &wide.v}) *x = x->to(at::kDouble);
  return std::get<0>(dispatch<AttentionOperator>(wide)).to(call.q.scalar_type());
}

TORCH_LIBRARY_IMPL(roformer, CPU, library) {
  library.impl("attention_kernel", boxed<attention_cpu>());
  library.impl("attention_kernel_backward", boxed<backward_cpu>());
}

TORCH_LIBRARY_IMPL(roformer, Meta, library) {
  library.impl("attention_kernel", boxed<attention_meta>());
  library.impl("attention_kernel_backward", boxed<backward_meta>());
}

}  // namespace rf::ops
