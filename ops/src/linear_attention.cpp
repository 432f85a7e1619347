// roformer::linear_attention_kernel on CPU and Meta tensors: rf_linear_attention_forward and
// rf_linear_attention_backward behind PyTorch's dispatcher. A state is not changed in place: the operator returns the
// new state. Gradients are in linear_attention_autograd.cpp.
#include "rf/ops/linear_attention.h"

#include <ATen/ops/empty.h>

#include "layout.h"
#include "linear_attention_operator.h"
#include "qkv_call.h"
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
    check_device(kOperator, name, *x, "q", call.q);
  }
}

void check_sizes(const LinearAttentionCall& call, const at::Tensor& x, at::ScalarType dtype,
                 const std::vector<c10::SymInt>& sizes, const char* name) {
  if (!x.defined()) return;
  TORCH_CHECK_VALUE(x.scalar_type() == dtype && x.sym_sizes() == c10::SymIntArrayRef(sizes), kWhere, name, " must be ",
                    dtype, " ", c10::SymIntArrayRef(sizes), ", got ", x.scalar_type(), " ", x.sym_sizes());
  check_device(kOperator, name, x, "q", call.q);
}

void check_state(const LinearAttentionCall& call) {
  const at::Tensor& k = call.k;
  check_sizes(call, call.key_exponents_BSH, row_dtype(call.q.scalar_type()),
              {k.sym_size(0), k.sym_size(1), k.sym_size(2)}, "key_exponents");
  const c10::SymInt sequences = entries_of(call);
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
  check_qkv(kOperator, "features", call);
  check_device(kOperator, "k", call.k, "q", call.q);
  check_device(kOperator, "v", call.v, "q", call.q);
  check_rotation(call, "query", call.query, call.q.sym_size(1));
  check_rotation(call, "key", call.key, call.k.sym_size(1));
  check_cu_seqlens(kOperator, call);
  check_state(call);
  const at::Tensor& mask = call.key_mask_BS;
  if (!mask.defined()) return;
  const c10::SymInt batch = call.q.sym_size(0), keys = call.k.sym_size(1);
  TORCH_CHECK_VALUE(mask.scalar_type() == at::kBool && mask.dim() == 2 &&
                        (mask.sym_size(0) == 1 || mask.sym_size(0) == batch) && mask.sym_size(1) == keys,
                    kWhere, "key_mask must be bool [1 or ", batch, ", ", keys, "], got ", mask.scalar_type(), " ",
                    mask.sym_sizes());
  check_device(kOperator, "key_mask", mask, "q", call.q);
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
  make_readable(to.cu_seqlens.q), make_readable(to.cu_seqlens.k);
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
  auto args = qkv_args<rf_linear_attention_args>(call, [](const at::Tensor& x) { return x.const_data_ptr(); });
  args.features = call.q.size(3);
  args.layout = parse_layout(kOperator, call.layout);
  args.direction = parse_direction(call.direction);
  args.denominator = parse_denominator(call.denominator);
  args.feature_map = parse_feature_map(call.feature_map);
  set_out(args, out);
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
  return args;
}

// state_after has the shape of the state.
LinearAttentionOperator::Results empty_results(const LinearAttentionCall& call) {
  const at::Tensor state_after = call.state.defined() ? at::empty_symint(call.state.sym_sizes(), call.state.options())
                                                      : at::empty({0}, call.q.options().dtype(at::kDouble));
  return std::tuple_cat(empty_out(call), std::tuple(state_after));
}

LinearAttentionOperator::Results linear_attention_cpu(const LinearAttentionCall& call) {
  check_call(call);
  LinearAttentionOperator::Results results = empty_results(call);
  auto& [out, denominators, state_after] = results;
  if (call.state.defined()) state_after.copy_(call.state);
  const LinearAttentionCall ready = made_contiguous(call);
  const rf_linear_attention_args args = core_args(ready, out, denominators, state_after);
  call_core(rf_linear_attention_forward, &args);
  return results;
}

LinearAttentionOperator::Results linear_attention_meta(const LinearAttentionCall& call) {
  check_call(call);
  return empty_results(call);
}

// Tensors for the gradients of q, k and v of a checked backward; undefined where not wanted.
std::array<at::Tensor, 3> empty_gradients(const LinearAttentionOperator::Backward& given,
                                          const LinearAttentionCall& call) {
  check_call(call);
  check_results(kOperator, "denominators", given, call);
  const auto like = [](bool is_wanted, const at::Tensor& x) {
    return is_wanted ? at::empty_symint(x.sym_sizes(), x.options()) : at::Tensor();
  };
  return {like(given.wanted[0], call.q), like(given.wanted[1], call.k), like(given.wanted[2], call.v)};
}

std::vector<at::Tensor> backward_meta(const LinearAttentionOperator::Backward& given, const LinearAttentionCall& call) {
  const auto grads = empty_gradients(given, call);
  return defined_of({grads.begin(), grads.end()});
}

std::vector<at::Tensor> backward_cpu(const LinearAttentionOperator::Backward& given, const LinearAttentionCall& call) {
  const auto grads = empty_gradients(given, call);
  const LinearAttentionCall ready = made_contiguous(call);
  const at::Tensor grad_out = given.grad.contiguous(), out = given.results[0].contiguous(),
                   denominators = given.results[1].contiguous();
  const at::Tensor no_state;
  const rf_linear_attention_args args = core_args(ready, out, denominators, no_state);
  const auto to = qkv_grads<rf_linear_attention_grads>(grad_out, grads[0], grads[1], grads[2]);
  call_core(rf_linear_attention_backward, &args, &to);
  return defined_of({grads.begin(), grads.end()});
}

}  // namespace

at::Tensor linear_attention_kernel(LinearAttentionCall& call) {
  const auto [out, denominators, state_after] = dispatch<LinearAttentionOperator>(call);
  if (call.state.defined()) call.state = state_after;
  return out;
}

TORCH_LIBRARY_IMPL(roformer, CPU, library) {
  library.impl("linear_attention_kernel", boxed<linear_attention_cpu>());
  library.impl("linear_attention_kernel_backward", boxed<backward_cpu>());
}

TORCH_LIBRARY_IMPL(roformer, Meta, library) {
  library.impl("linear_attention_kernel", boxed<linear_attention_meta>());
  library.impl("linear_attention_kernel_backward", boxed<backward_meta>());
}

}  // namespace rf::ops
