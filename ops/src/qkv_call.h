// Shared by the calls of both kinds of attention: rules, and fields of core's arguments. Call is an AttentionCall or a
// LinearAttentionCall.
#pragma once

#include "core_call.h"
#include "rf/ops/terms.h"

namespace rf::ops {

// width: the name of the last dimension of q and k.
template <class Call>
void check_qkv(const char* where, const char* width, const Call& call) {
  const at::Tensor &q = call.q, &k = call.k, &v = call.v;
  TORCH_CHECK_VALUE(core_dtype(q.scalar_type()), "[", where, "] q must be float32, float64, bfloat16 or float16, got ",
                    q.scalar_type());
  for (const auto& [x, name] : {std::pair{&q, "q"}, {&k, "k"}, {&v, "v"}}) {
    TORCH_CHECK_VALUE(x->dim() == 4 && x->scalar_type() == q.scalar_type(), "[", where, "] ", name,
                      " must be [batch, tokens, heads, size] of ", q.scalar_type(), ", got ", x->scalar_type(), " ",
                      x->sym_sizes());
  }
  TORCH_CHECK_VALUE(k.sym_size(0) == q.sym_size(0) && k.sym_size(3) == q.sym_size(3), "[", where,
                    "] k must be [batch, keys, key_heads, ", width, "] to match q, ", q.sym_sizes(), ", got ",
                    k.sym_sizes());
  TORCH_CHECK_VALUE(v.sym_size(0) == k.sym_size(0) && v.sym_size(1) == k.sym_size(1) && v.sym_size(2) == k.sym_size(2),
                    "[", where, "] v must be [batch, keys, key_heads, value_dim] to match k, ", k.sym_sizes(), ", got ",
                    v.sym_sizes());
}

template <class Call>
void check_cu_seqlens(const char* where, const Call& call) {
  const auto& [q, k] = call.cu_seqlens;
  for (const auto& [x, name] : {std::pair{&q, "cu_seqlens_q"}, {&k, "cu_seqlens_k"}}) {
    if (!x->defined()) continue;
    check_device(where, name, *x, "q", call.q);
    const at::ScalarType type = x->scalar_type();
    TORCH_CHECK_VALUE((type == at::kInt || type == at::kLong) && x->dim() == 1 && x->sym_size(0) >= 1, "[", where, "] ",
                      name, " must be int32 or int64 [sequences + 1], got ", type, " ", x->sym_sizes());
  }
  TORCH_CHECK_VALUE(q.defined() == k.defined(), "[", where, "] cu_seqlens_q and cu_seqlens_k must be given together, ",
                    "got ", q.defined() ? "cu_seqlens_q" : "cu_seqlens_k", " alone");
  TORCH_CHECK_VALUE(!q.defined() || q.sym_size(0) == k.sym_size(0), "[", where,
                    "] cu_seqlens_k must have the shape of cu_seqlens_q, ", q.sym_sizes(), ", got ", k.sym_sizes());
}

// The number of packed sequences, or of entries of the batch.
template <class Call>
c10::SymInt entries_of(const Call& call) {
  return call.cu_seqlens.defined() ? call.cu_seqlens.q.sym_size(0) - 1 : call.q.sym_size(0);
}

// x: a result of the forward, or its gradient; like: an empty one.
inline void check_result(const char* where, const char* name, const at::Tensor& x, const at::Tensor& like) {
  TORCH_CHECK_VALUE(
      x.sym_sizes() == like.sym_sizes() && x.scalar_type() == like.scalar_type() && x.device() == like.device(), "[",
      where, "] ", name, " must have the dtype and shape of the forward's, ", like.scalar_type(), " ", like.sym_sizes(),
      ", got ", x.scalar_type(), " ", x.sym_sizes());
}

// out [B,T,H,Dv], and [B,H,T] numbers for the backward, which the loops ignore.
template <class Call>
std::tuple<at::Tensor, at::Tensor> empty_out(const Call& call) {
  const at::Tensor& q = call.q;
  const c10::SymInt batch = q.sym_size(0), queries = q.sym_size(1), heads = q.sym_size(2);
  const c10::SymInt kept = q.scalar_type() == at::kDouble ? c10::SymInt(0) : batch;
  return {at::empty_symint({batch, queries, heads, call.v.sym_size(3)}, q.options()),
          at::empty_symint({kept, heads, queries}, q.options().dtype(at::kFloat))};
}

// The arguments of a backward, whose second result is named `name`.
template <class Backward, class Call>
void check_results(const char* where, const char* name, const Backward& given, const Call& call) {
  const auto [out, kept] = empty_out(call);
  check_result(where, "grad_out", given.grad, out);
  check_result(where, "out", given.results[0], out);
  check_result(where, name, given.results[1], kept);
}

// int32 or int64 indices as core reads them.
inline void make_readable(at::Tensor& indices) {
  if (indices.defined()) indices = indices.to(at::kCPU, at::kLong).contiguous();
}

// core's arguments with the fields of q, k, v and the packed sequences, which core reads. `address` points to the
// elements of a tensor.
template <class Args, class Call, class Address>
Args qkv_args(const Call& call, const Address& address) {
  const at::Tensor &q = call.q, &k = call.k, &v = call.v;
  Args args{};
  args.struct_size = sizeof args;
  args.dtype = *core_dtype(q.scalar_type());
  args.batch = q.size(0), args.queries = q.size(1), args.heads = q.size(2);
  args.keys = k.size(1), args.key_heads = k.size(2), args.value_dim = v.size(3);
  args.q = address(q), args.q_stride_b = q.stride(0), args.q_stride_t = q.stride(1), args.q_stride_h = q.stride(2);
  args.k = address(k), args.k_stride_b = k.stride(0), args.k_stride_t = k.stride(1), args.k_stride_h = k.stride(2);
  args.v = address(v), args.v_stride_b = v.stride(0), args.v_stride_t = v.stride(1), args.v_stride_h = v.stride(2);
  args.cu_seqlens_q = static_cast<const int64_t*>(data_or_null(call.cu_seqlens.q));
  args.cu_seqlens_k = static_cast<const int64_t*>(data_or_null(call.cu_seqlens.k));
  args.sequences = call.cu_seqlens.defined() ? call.cu_seqlens.q.size(0) - 1 : 0;
  return args;
}

template <class Args>
void set_out(Args& args, Borrowed<at::Tensor> out) {
  args.out = out->mutable_data_ptr();
  args.out_stride_b = out->stride(0), args.out_stride_t = out->stride(1), args.out_stride_h = out->stride(2);
}

// Gradients of core without the gradients of terms. q, k, v: contiguous, undefined if not wanted; grad_out: its last
// dimension contiguous.
template <class Grads>
Grads qkv_grads(Borrowed<at::Tensor> grad_out, Borrowed<at::Tensor> q, Borrowed<at::Tensor> k, Borrowed<at::Tensor> v) {
  Grads grads{};
  grads.struct_size = sizeof grads;
  grads.out = grad_out->const_data_ptr();
  grads.out_stride_b = grad_out->stride(0), grads.out_stride_t = grad_out->stride(1);
  grads.out_stride_h = grad_out->stride(2);
  grads.q = mutable_or_null(q), grads.k = mutable_or_null(k), grads.v = mutable_or_null(v);
  return grads;
}

}  // namespace rf::ops
