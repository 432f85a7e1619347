// roformer::linear_attention_kernel on CPU and Meta tensors: rf_linear_attention_forward and
// rf_linear_attention_backward behind PyTorch's dispatcher. A state is not changed in place: the operator returns the
// new state. Gradients are in linear_attention_autograd.cpp.
#include "rf/ops/linear_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "layout.h"
#include "linear_attention_operator.h"
#include "rf/linear_attention.h"

namespace rf::ops {
namespace {

constexpr const char *kOperator = "linear_attention", *kWhere = "[linear_attention] ";

rf_feature_map parse_feature_map(std::string_view name) {
  return parse_name<rf_feature_map>(
      kOperator, "feature_map", name,
      {{"given", RF_FEATURES_GIVEN}, {"elu", RF_FEATURES_ELU_PLUS_ONE}, {"relu", RF_FEATURES_RELU}});
}
rf_linear_direction parse_direction(std::string_view name) {
  return parse_name<rf_linear_direction>(kOperator, "direction", name,
                                         {{"bidirectional", RF_LINEAR_BIDIRECTIONAL}, {"causal", RF_LINEAR_CAUSAL}});
}
rf_linear_denominator parse_denominator(std::string_view name) {
  return parse_name<rf_linear_denominator>(kOperator, "denominator", name,
                                           {{"plain", RF_DENOMINATOR_PLAIN}, {"rotated", RF_DENOMINATOR_ROTATED}});
}

void push_call(torch::jit::Stack& stack, const LinearAttentionCall& call) {
  torch::jit::push(stack, call.q, call.k, call.v, call.feature_map, call.direction, call.denominator,
                   none_or(call.query.cos), none_or(call.query.sin), none_or(call.key.cos), none_or(call.key.sin),
                   call.layout, none_or(call.key_mask_BS), call.eps, none_or(call.key_exponents_BSH),
                   none_or(call.packed.cu_seqlens_q), none_or(call.packed.cu_seqlens_k));
}

void check_device(const LinearAttentionCall& call, const at::Tensor& x, const char* name) {
  TORCH_CHECK_VALUE(x.device() == call.q.device(), kWhere, name, " must be on the device of q, ", call.q.device(),
                    ", got ", x.device());
}

// name: "query" or "key".
void check_rotation(const LinearAttentionCall& call, const char* name, const Rotation& rotation,
                    const c10::SymInt& tokens) {
  const auto& [cos, sin] = rotation;
  TORCH_CHECK_VALUE(cos.defined() == sin.defined(), kWhere, name, "_cos and ", name,
                    "_sin must be given together, got ", name, cos.defined() ? "_cos" : "_sin", " alone");
  if (!cos.defined()) return;
  TORCH_CHECK_VALUE(cos.dim() == 3 && cos.sym_size(1) == tokens && sin.sym_sizes() == cos.sym_sizes(), kWhere, name,
                    "_cos and ", name, "_sin must be [1 or batch, ", tokens, ", R/2], got ", cos.sym_sizes(), " and ",
                    sin.sym_sizes());
  const at::ScalarType dtype = row_dtype(call.q.scalar_type());
  for (const at::Tensor* x : {&cos, &sin}) {
    TORCH_CHECK_VALUE(x->scalar_type() == dtype, kWhere, name, "_cos and ", name, "_sin must be ", dtype,
                      " for data of ", call.q.scalar_type(), ", got ", x->scalar_type());
    check_device(call, *x, name);
  }
}

void check_sizes(const LinearAttentionCall& call, const at::Tensor& x, at::ScalarType dtype,
                 const std::vector<c10::SymInt>& sizes, const char* name) {
  if (!x.defined()) return;
  TORCH_CHECK_VALUE(x.scalar_type() == dtype && x.sym_sizes() == c10::SymIntArrayRef(sizes), kWhere, name, " must be ",
                    dtype, " ", c10::SymIntArrayRef(sizes), ", got ", x.scalar_type(), " ", x.sym_sizes());
  check_device(call, x, name);
}

void check_ends(const LinearAttentionCall& call) {
  const auto& [q, k] = call.packed;
  TORCH_CHECK_VALUE(q.defined() == k.defined(), kWhere, "cu_seqlens_q and cu_seqlens_k must be given together, got ",
                    q.defined() ? "cu_seqlens_q" : "cu_seqlens_k", " alone");
  if (!q.defined()) return;
  TORCH_CHECK_VALUE((q.scalar_type() == at::kInt || q.scalar_type() == at::kLong) && q.dim() == 1 && q.sym_size(0) >= 1,
                    kWhere, "cu_seqlens_q must be int32 or int64 [sequences + 1], got ", q.scalar_type(), " ",
                    q.sym_sizes());
  check_device(call, q, "cu_seqlens_q");
  check_sizes(call, k, q.scalar_type(), {q.sym_size(0)}, "cu_seqlens_k");
}

void check_state(const LinearAttentionCall& call) {
  const at::Tensor& k = call.k;
  check_sizes(call, call.key_exponents_BSH, row_dtype(call.q.scalar_type()),
              {k.sym_size(0), k.sym_size(1), k.sym_size(2)}, "key_exponents");
  const c10::SymInt sequences = call.packed.defined() ? call.packed.cu_seqlens_q.sym_size(0) - 1 : k.sym_size(0);
  check_sizes(call, call.state, at::kDouble, {sequences, k.sym_size(2), k.sym_size(3), call.v.sym_size(3) + 1},
              "state");
  check_sizes(call, call.state_exponents, at::kDouble, {sequences, k.sym_size(2)}, "state_exponents");
}

// Leaves errors to core that core can see in its arguments.
void check_call(const LinearAttentionCall& call) {
  parse_feature_map(call.feature_map);
  parse_direction(call.direction);
  parse_denominator(call.denominator);
  parse_layout(kOperator, call.layout);
  check_qkv(kOperator, "features", call.q, call.k, call.v);
  check_device(call, call.k, "k");
  check_device(call, call.v, "v");
  check_rotation(call, "query", call.query, call.q.sym_size(1));
  check_rotation(call, "key", call.key, call.k.sym_size(1));
  check_ends(call);
  check_state(call);
  const at::Tensor& mask = call.key_mask_BS;
  if (!mask.defined()) return;
  const c10::SymInt batch = call.q.sym_size(0), keys = call.k.sym_size(1);
  TORCH_CHECK_VALUE(mask.scalar_type() == at::kBool && mask.dim() == 2 &&
                        (mask.sym_size(0) == 1 || mask.sym_size(0) == batch) && mask.sym_size(1) == keys,
                    kWhere, "key_mask must be bool [1 or ", batch, ", ", keys, "], got ", mask.scalar_type(), " ",
                    mask.sym_sizes());
  check_device(call, mask, "key_mask");
}

// The same call with contiguous tensors where core needs them, and the mask expanded; copies only where necessary.
LinearAttentionCall made_contiguous(const LinearAttentionCall& call) {
  LinearAttentionCall to = call;
  for (at::Tensor* x : {&to.q, &to.k, &to.v}) {
    if (x->stride(-1) != 1 && x->size(-1) != 1) *x = x->contiguous();
  }
  for (at::Tensor* x : {&to.query.cos, &to.query.sin, &to.key.cos, &to.key.sin, &to.key_exponents_BSH}) {
    if (x->defined()) *x = x->contiguous();
  }
  for (at::Tensor* x : {&to.packed.cu_seqlens_q, &to.packed.cu_seqlens_k}) {
    if (x->defined()) *x = x->to(at::kLong).contiguous();
  }
  if (to.state_exponents.defined()) to.state_exponents = to.state_exponents.clone();  // which core overwrites
  if (call.key_mask_BS.defined()) to.key_mask_BS = call.key_mask_BS.expand({call.q.size(0), call.k.size(1)});
  return to;
}

rf_attention_rotation rotation_args(Borrowed<Rotation> rotation) {
  if (!rotation->defined()) return {};
  const auto& [cos, sin] = *rotation;
  return {cos.const_data_ptr(), sin.const_data_ptr(), cos.size(0), cos.size(2)};
}

// core's arguments for a call that made_contiguous returned. state: may be undefined.
rf_linear_attention_args core_args(Borrowed<LinearAttentionCall> ready, Borrowed<at::Tensor> out,
                                   Borrowed<at::Tensor> denominators, Borrowed<at::Tensor> state) {
  const LinearAttentionCall& call = *ready;
  const at::Tensor &q = call.q, &k = call.k, &v = call.v;
  rf_linear_attention_args args{};
  args.struct_size = sizeof args;
  args.dtype = *core_dtype(q.scalar_type());
  args.layout = parse_layout(kOperator, call.layout);
  args.direction = parse_direction(call.direction);
  args.denominator = parse_denominator(call.denominator);
  args.feature_map = parse_feature_map(call.feature_map);
  args.batch = q.size(0), args.queries = q.size(1), args.heads = q.size(2), args.features = q.size(3);
  args.keys = k.size(1), args.key_heads = k.size(2), args.value_dim = v.size(3);
  args.q = q.const_data_ptr(), args.k = k.const_data_ptr(), args.v = v.const_data_ptr();
  args.q_stride_b = q.stride(0), args.q_stride_t = q.stride(1), args.q_stride_h = q.stride(2);
  args.k_stride_b = k.stride(0), args.k_stride_t = k.stride(1), args.k_stride_h = k.stride(2);
  args.v_stride_b = v.stride(0), args.v_stride_t = v.stride(1), args.v_stride_h = v.stride(2);
  args.out = out->mutable_data_ptr();
  args.out_stride_b = out->stride(0), args.out_stride_t = out->stride(1), args.out_stride_h = out->stride(2);
  if (denominators->numel() > 0) args.denominators = denominators->mutable_data_ptr<float>();
  args.query = rotation_args(call.query);
  args.key = rotation_args(call.key);
  args.eps = call.eps;
  if (call.key_mask_BS.defined()) {
    args.key_mask = static_cast<const uint8_t*>(call.key_mask_BS.const_data_ptr());
    args.key_mask_stride_b = call.key_mask_BS.stride(0), args.key_mask_stride_s = call.key_mask_BS.stride(1);
  }
  if (state->defined() && state->numel() > 0) args.state = state->mutable_data_ptr<double>();
  args.key_exponents = data_or_null(call.key_exponents_BSH);
  args.state_exponents = static_cast<double*>(mutable_or_null(call.state_exponents));
  if (call.packed.defined()) {
    args.cu_seqlens_q = call.packed.cu_seqlens_q.const_data_ptr<int64_t>();
    args.cu_seqlens_k = call.packed.cu_seqlens_k.const_data_ptr<int64_t>();
    args.sequences = call.packed.cu_seqlens_q.size(0) - 1;
  }
  return args;
}

// out [B,T,H,Dv]; denominators [B,H,T], which the loops ignore; state_after has the shape of the state.
LinearAttentionResult empty_results(const LinearAttentionCall& call) {
  const at::Tensor& q = call.q;
  const c10::SymInt batch = q.sym_size(0), queries = q.sym_size(1), heads = q.sym_size(2);
  const c10::SymInt kept = q.scalar_type() == at::kDouble ? c10::SymInt(0) : batch;
  return {at::empty_symint({batch, queries, heads, call.v.sym_size(3)}, q.options()),
          at::empty_symint({kept, heads, queries}, q.options().dtype(at::kFloat)),
          call.state.defined() ? at::empty_symint(call.state.sym_sizes(), call.state.options())
                               : at::empty({0}, q.options().dtype(at::kDouble))};
}

LinearAttentionResult linear_attention_cpu(const LinearAttentionCall& call) {
  check_call(call);
  LinearAttentionResult results = empty_results(call);
  auto& [out, denominators, state_after] = results;
  if (call.state.defined()) state_after.copy_(call.state);
  const LinearAttentionCall ready = made_contiguous(call);
  const rf_linear_attention_args args = core_args(ready, out, denominators, state_after);
  call_core(rf_linear_attention_forward, &args);
  return results;
}

LinearAttentionResult linear_attention_meta(const LinearAttentionCall& call) {
  check_call(call);
  return empty_results(call);
}

void check_results(const LinearAttentionCall& call, const LinearAttentionBackward& given) {
  const auto [out, denominators, state] = empty_results(call);
  check_result(kOperator, "grad_out", given.grad_out, out);
  check_result(kOperator, "out", given.out, out);
  check_result(kOperator, "denominators", given.denominators, denominators);
}

// Tensors for the gradients of q, k and v; undefined where not wanted.
std::vector<at::Tensor> empty_gradients(const LinearAttentionCall& call, LinearAttentionWanted wanted) {
  const auto like = [](bool is_wanted, const at::Tensor& x) {
    return is_wanted ? at::empty_symint(x.sym_sizes(), x.options()) : at::Tensor();
  };
  return {like(wanted[0], call.q), like(wanted[1], call.k), like(wanted[2], call.v)};
}

std::vector<at::Tensor> backward_cpu(const LinearAttentionCall& call, const LinearAttentionBackward& given) {
  check_call(call);
  check_results(call, given);
  const std::vector<at::Tensor> grads = empty_gradients(call, given.wanted);
  const LinearAttentionCall ready = made_contiguous(call);
  const at::Tensor grad_out = given.grad_out.contiguous(), out = given.out.contiguous(),
                   denominators = given.denominators.contiguous();
  const at::Tensor no_state;
  const rf_linear_attention_args args = core_args(ready, out, denominators, no_state);
  rf_linear_attention_grads to{};
  to.struct_size = sizeof to;
  to.out = grad_out.const_data_ptr();
  to.out_stride_b = grad_out.stride(0), to.out_stride_t = grad_out.stride(1), to.out_stride_h = grad_out.stride(2);
  to.q = mutable_or_null(grads[0]), to.k = mutable_or_null(grads[1]), to.v = mutable_or_null(grads[2]);
  call_core(rf_linear_attention_backward, &args, &to);
  return defined_of(grads);
}

std::vector<at::Tensor> backward_meta(const LinearAttentionCall& call, const LinearAttentionBackward& given) {
  check_call(call);
  check_results(call, given);
  return defined_of(empty_gradients(call, given.wanted));
}

}  // namespace

LinearAttentionCall read_linear_call(StackReader& stack, bool is_forward) {
  LinearAttentionCall call;
  for (at::Tensor* x : {&call.q, &call.k, &call.v}) *x = stack.tensor();
  for (std::string* x : {&call.feature_map, &call.direction, &call.denominator}) *x = stack.text();
  for (at::Tensor* x : {&call.query.cos, &call.query.sin, &call.key.cos, &call.key.sin}) *x = stack.optional_tensor();
  call.layout = stack.text();
  call.key_mask_BS = stack.optional_tensor();
  call.eps = stack.number();
  for (at::Tensor* x : {&call.key_exponents_BSH, &call.packed.cu_seqlens_q, &call.packed.cu_seqlens_k})
    *x = stack.optional_tensor();
  if (!is_forward) return call;
  for (at::Tensor* x : {&call.state, &call.state_exponents}) *x = stack.optional_tensor();
  return call;
}

LinearAttentionBackward read_linear_backward(StackReader& stack) {
  return {stack.tensor(), stack.tensor(), stack.tensor(), stack.flags<3>()};
}

LinearAttentionResult dispatch_linear_attention(const LinearAttentionCall& call) {
  static const c10::OperatorHandle op = find_schema("roformer::linear_attention_kernel");
  torch::jit::Stack stack;
  push_call(stack, call);
  torch::jit::push(stack, none_or(call.state), none_or(call.state_exponents));
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

at::Tensor linear_attention_kernel(const at::Tensor& q_BTHF, const at::Tensor& k_BSHF, const at::Tensor& v_BSHD,
                                   const LinearAttentionOptions& options, at::Tensor* state,
                                   const at::Tensor& state_exponents) {
  auto [out, denominators, state_after] = dispatch_linear_attention(
      {options, q_BTHF, k_BSHF, v_BSHD, state != nullptr ? *state : at::Tensor(), state_exponents});
  if (state != nullptr) *state = state_after;
  return out;
}

TORCH_LIBRARY_IMPL(roformer, CPU, library) {
  library.impl("linear_attention_kernel",
               torch::CppFunction::makeFromBoxedFunction<linear_attention_entry<linear_attention_cpu>>());
  library.impl("linear_attention_kernel_backward",
               torch::CppFunction::makeFromBoxedFunction<linear_attention_backward_entry<backward_cpu>>());
}

TORCH_LIBRARY_IMPL(roformer, Meta, library) {
  library.impl("linear_attention_kernel",
               torch::CppFunction::makeFromBoxedFunction<linear_attention_entry<linear_attention_meta>>());
  library.impl("linear_attention_kernel_backward",
               torch::CppFunction::makeFromBoxedFunction<linear_attention_backward_entry<backward_meta>>());
}

}  // namespace rf::ops
