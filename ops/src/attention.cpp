// roformer::attention_kernel on CPU and Meta tensors: rf_attention_forward and rf_attention_backward behind PyTorch's
// dispatcher; float64 data goes to the loops, float32, bfloat16 and float16 to the tiles. Gradients are in
// attention_autograd.cpp.
#include "rf/ops/attention.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "attention_operator.h"
#include "find_operator.h"
#include "status.h"

namespace rf::ops {
namespace {

c10::SymInt log_sum_size(const at::Tensor& q, const c10::SymInt& size) {
  return q.scalar_type() == at::kDouble ? c10::SymInt(0) : size;
}

// out [B,T,H,Dv] and log_sum [B,H,T], which is of no use to the loops.
AttentionResult empty_results(const AttentionCall& call) {
  const at::Tensor& q = call.q();
  const c10::SymInt batch = q.sym_size(0), queries = q.sym_size(1), heads = q.sym_size(2);
  return {at::empty_symint({batch, queries, heads, call.v().sym_size(3)}, q.options()),
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

Inputs empty_gradients(const Wanted& wanted, const AttentionCall& call) {
  Inputs grads;
  for (size_t i = 0; i < kInputs; ++i) {
    if (!wanted[i]) continue;
    const at::Tensor& x = call.inputs[i];
    TORCH_CHECK_VALUE(x.defined(), "[attention] wanted must name terms that are given, got the absent term ",
                      i - kQueryCos);
    grads[i] = at::empty_symint(x.sym_sizes(), x.options());
  }
  return grads;
}

std::vector<at::Tensor> of_wanted(const Inputs& grads) {
  std::vector<at::Tensor> wanted;
  for (const at::Tensor& grad : grads) {
    if (grad.defined()) wanted.push_back(grad);
  }
  return wanted;
}

void check_results(const at::Tensor& grad_out, const at::Tensor& out, const at::Tensor& log_sum,
                   const AttentionCall& call) {
  const auto [like_out, like_log_sum] = empty_results(call);
  for (const auto& [x, like, name] :
       {std::tuple{&grad_out, &like_out, "grad_out"}, {&out, &like_out, "out"}, {&log_sum, &like_log_sum, "log_sum"}}) {
    TORCH_CHECK_VALUE(
        x->sym_sizes() == like->sym_sizes() && x->scalar_type() == like->scalar_type() && x->device() == like->device(),
        "[attention] ", name, " must have the dtype and shape of the forward's, ", like->scalar_type(), " ",
        like->sym_sizes(), ", got ", x->scalar_type(), " ", x->sym_sizes());
  }
}

std::vector<at::Tensor> backward_cpu(const AttentionCall& call, const at::Tensor& grad_out, const at::Tensor& out,
                                     const at::Tensor& log_sum, Wanted wanted) {
  check_call(call);
  check_results(grad_out, out, log_sum, call);
  const Inputs grads = empty_gradients(wanted, call);
  const AttentionCall ready = made_contiguous(call);
  const at::Tensor given = grad_out.contiguous(), out_rows = out.contiguous(), sums = log_sum.contiguous();
  const rf_attention_args args = core_args(ready, out_rows, sums);
  const rf_attention_grads grad_args = core_grads(given, grads);
  call_core(rf_attention_backward, &args, &grad_args);
  return of_wanted(grads);
}

std::vector<at::Tensor> backward_meta(const AttentionCall& call, const at::Tensor& grad_out, const at::Tensor& out,
                                      const at::Tensor& log_sum, Wanted wanted) {
  check_call(call);
  check_results(grad_out, out, log_sum, call);
  return of_wanted(empty_gradients(wanted, call));
}

std::optional<at::Tensor> if_defined(const at::Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}

TermList terms_of(const AttentionCall& call) {
  TermList terms;
  for (size_t i = kQueryCos; i < kInputs; ++i) {
    terms.push_back(if_defined(call.inputs[i]));
  }
  return terms;
}

// What is converted, or looked at before the operator sees it.
void check_given(const char* name, const at::Tensor& x) {
  TORCH_CHECK_VALUE(x.defined(), "[attention] ", name, " must be [batch, tokens, heads, size], got nothing");
  TORCH_CHECK_VALUE(at::isFloatingType(x.scalar_type()), "[attention] ", name, " must be floating-point, got ",
                    x.scalar_type());
}

// Terms in `dtype`, outside autograd's function, so that their gradients return to their own dtypes.
AttentionCall make_call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Terms& t,
                        at::ScalarType dtype) {
  check_given("q", q);
  check_given("k", k);
  check_given("v", v);
  AttentionCall call;
  call.inputs = {q, k, v};
  size_t next = kQueryCos;
  for (const at::Tensor* term :
       {&t.query.cos, &t.query.sin, &t.key.cos, &t.key.sin, &t.value.cos, &t.value.sin, &t.content_bias_HD,
        &t.position_bias_HD, &t.key_table.rows, &t.query_table.rows, &t.value_table.rows, &t.bias.rows, &t.gate.rows,
        &t.position_query_HPD, &t.position_key_HPD, &t.reset_row_H, &t.reset_col_H}) {
    call.inputs[next++] = term->defined() ? term->to(dtype).contiguous() : *term;
  }
  call.ranges = {t.key_table.lo,   t.key_table.hi, t.query_table.lo, t.query_table.hi, t.value_table.lo,
                 t.value_table.hi, t.bias.lo,      t.bias.hi,        t.gate.lo,        t.gate.hi};
  call.layout = t.layout;
  call.scale = t.scale;
  return call;
}

}  // namespace

AttentionResult dispatch_attention(const AttentionCall& c) {
  static const auto op = find_operator<AttentionSignature<AttentionResult>>("roformer::attention_kernel");
  return op.call(c.q(), c.k(), c.v(), c.query_positions, c.key_positions, c.attend, terms_of(c), c.ranges, c.layout,
                 c.scale, c.window.left, c.window.right, c.dropout, c.seed, c.stream, if_defined(c.packed.cu_seqlens_q),
                 if_defined(c.packed.cu_seqlens_k));
}

std::vector<at::Tensor> dispatch_attention_backward(const AttentionCall& c, const at::Tensor& grad_out,
                                                    const at::Tensor& out, const at::Tensor& log_sum, Wanted wanted) {
  static const auto op = find_operator<
      AttentionSignature<std::vector<at::Tensor>, const at::Tensor&, const at::Tensor&, const at::Tensor&, Wanted>>(
      "roformer::attention_kernel_backward");
  return op.call(grad_out, out, log_sum, wanted, c.q(), c.k(), c.v(), c.query_positions, c.key_positions, c.attend,
                 terms_of(c), c.ranges, c.layout, c.scale, c.window.left, c.window.right, c.dropout, c.seed, c.stream,
                 if_defined(c.packed.cu_seqlens_q), if_defined(c.packed.cu_seqlens_k));
}

at::Tensor attention_fused(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                           const Terms& terms, const at::Tensor& query_positions, const at::Tensor& key_positions,
                           const at::Tensor& attend, TokenWindow window, const ProbabilityDropout& dropout,
                           const PackedSequences& packed) {
  AttentionCall call = make_call(q_BTHD, k_BSHD, v_BSHD, terms, at::kFloat);
  TORCH_CHECK_VALUE(q_BTHD.scalar_type() != at::kDouble,
                    "[attention] q must be float32, bfloat16 or float16 for the fused kernel, got Double");
  call.query_positions = query_positions, call.key_positions = key_positions;
  if (attend.defined()) call.attend = attend;
  call.window = window;
  call.packed = packed;
  call.dropout = dropout.p, call.seed = dropout.seed, call.stream = dropout.stream;
  return std::get<0>(dispatch_attention(call));
}

at::Tensor attention_ref(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                         const Terms& terms, const at::Tensor& query_positions, const at::Tensor& key_positions,
                         const at::Tensor& attend, TokenWindow window, const PackedSequences& packed) {
  AttentionCall call = make_call(q_BTHD, k_BSHD, v_BSHD, terms, at::kDouble);
  for (at::Tensor& x : {std::ref(call.inputs[kQ]), std::ref(call.inputs[kK]), std::ref(call.inputs[kV])}) {
    x = x.to(at::kDouble);
  }
  call.query_positions = query_positions, call.key_positions = key_positions;
  if (attend.defined()) call.attend = attend;
  call.window = window;
  call.packed = packed;
  return std::get<0>(dispatch_attention(call)).to(q_BTHD.scalar_type());
}

TORCH_LIBRARY_IMPL(roformer, CPU, library) {
  library.impl("attention_kernel", AttentionKernel<attention_cpu>::run);
  library.impl("attention_kernel_backward", AttentionKernel<backward_cpu>::run);
}

TORCH_LIBRARY_IMPL(roformer, Meta, library) {
  library.impl("attention_kernel", AttentionKernel<attention_meta>::run);
  library.impl("attention_kernel_backward", AttentionKernel<backward_meta>::run);
}

}  // namespace rf::ops
