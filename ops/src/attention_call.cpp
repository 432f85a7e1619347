// Rules and layouts of a call of attention (attention_call.h).
#include "attention_call.h"

#include <ATen/core/Formatting.h>
#include <c10/util/Exception.h>

#include <cmath>

#include "dtype.h"
#include "layout.h"

namespace rf::ops {
namespace {

using SymSizes = std::vector<c10::SymInt>;

constexpr std::array<const char*, kInputs> kNames = {
    "q",           "k",           "v",         "query_cos",    "query_sin",      "key_cos",
    "key_sin",     "value_cos",   "value_sin", "content_bias", "position_bias",  "key_table",
    "query_table", "value_table", "bias",      "gate",         "position_query", "position_key",
    "reset_row",   "reset_col"};
constexpr std::array<Input, 5> kTables = {kKeyTable, kQueryTable, kValueTable, kBias, kGate};  // as in ranges
static_assert(kRanges == 2 * kTables.size());

bool has_sizes(const at::Tensor& x, const SymSizes& sizes) {
  return x.sym_sizes() == c10::SymIntArrayRef(sizes);
}

void check_data(const AttentionCall& call) {
  const at::Tensor &q = call.q(), &k = call.k(), &v = call.v();
  TORCH_CHECK_VALUE(core_dtype(q.scalar_type()), "[attention] q must be float32, float64, bfloat16 or float16, got ",
                    q.scalar_type());
  for (const Input i : {kQ, kK, kV}) {
    const at::Tensor& x = call.inputs[i];
    TORCH_CHECK_VALUE(x.dim() == 4 && x.scalar_type() == q.scalar_type(), "[attention] ", kNames[i],
                      " must be [batch, tokens, heads, size] of ", q.scalar_type(), ", got ", x.scalar_type(), " ",
                      x.sym_sizes());
  }
  TORCH_CHECK_VALUE(k.sym_size(0) == q.sym_size(0) && k.sym_size(3) == q.sym_size(3),
                    "[attention] k must be [batch, keys, key_heads, head_dim] to match q, ", q.sym_sizes(), ", got ",
                    k.sym_sizes());
  TORCH_CHECK_VALUE(v.sym_size(0) == k.sym_size(0) && v.sym_size(1) == k.sym_size(1) && v.sym_size(2) == k.sym_size(2),
                    "[attention] v must be [batch, keys, key_heads, value_dim] to match k, ", k.sym_sizes(), ", got ",
                    v.sym_sizes());
}

void check_device(const AttentionCall& call, const at::Tensor& x, const char* name) {
  TORCH_CHECK_VALUE(x.device() == call.q().device(), "[attention] ", name, " must be on the device of q, ",
                    call.q().device(), ", got ", x.device());
}

void check_positions(const AttentionCall& call, const at::Tensor& positions, const char* name,
                     const c10::SymInt& tokens) {
  const c10::SymInt batch = call.q().sym_size(0);
  TORCH_CHECK_VALUE(positions.scalar_type() == at::kLong, "[attention] ", name, " must be int64, got ",
                    positions.scalar_type());
  TORCH_CHECK_VALUE(positions.dim() == 2 && (positions.sym_size(0) == 1 || positions.sym_size(0) == batch) &&
                        positions.sym_size(1) == tokens,
                    "[attention] ", name, " must be [1 or ", batch, ", ", tokens, "], got ", positions.sym_sizes());
  check_device(call, positions, name);
}

void check_ends(const AttentionCall& call, const at::Tensor& cu_seqlens, const char* name) {
  if (!cu_seqlens.defined()) return;
  const at::ScalarType type = cu_seqlens.scalar_type();
  TORCH_CHECK_VALUE((type == at::kInt || type == at::kLong) && cu_seqlens.dim() == 1 && cu_seqlens.sym_size(0) >= 1,
                    "[attention] ", name, " must be int32 or int64 [sequences + 1], got ", type, " ",
                    cu_seqlens.sym_sizes());
  check_device(call, cu_seqlens, name);
}

void check_packed(const AttentionCall& call) {
  const auto& [q, k] = call.packed;
  check_ends(call, q, "cu_seqlens_q");
  check_ends(call, k, "cu_seqlens_k");
  TORCH_CHECK_VALUE(!q.defined() || !k.defined() || q.sym_size(0) == k.sym_size(0),
                    "[attention] cu_seqlens_k must have the shape of cu_seqlens_q, ", q.sym_sizes(), ", got ",
                    k.sym_sizes());
}

void check_rotation(const AttentionCall& call, Input cos_at, const c10::SymInt& tokens) {
  const at::Tensor &cos = call.inputs[cos_at], &sin = call.inputs[cos_at + 1];
  TORCH_CHECK_VALUE(cos.defined() == sin.defined(), "[attention] ", kNames[cos_at], " and ", kNames[cos_at + 1],
                    " must be given together, got ", kNames[cos.defined() ? cos_at : cos_at + 1], " alone");
  if (!cos.defined()) return;
  TORCH_CHECK_VALUE(cos.dim() == 3 && cos.sym_size(1) == tokens && sin.sym_sizes() == cos.sym_sizes(), "[attention] ",
                    kNames[cos_at], " and ", kNames[cos_at + 1], " must be [1 or batch, ", tokens, ", R/2], got ",
                    cos.sym_sizes(), " and ", sin.sym_sizes());
}

void check_table(const AttentionCall& call, size_t index) {
  const Input at = kTables[index];
  const at::Tensor& rows = call.inputs[at];
  if (!rows.defined()) return;
  const int64_t lo = call.ranges[2 * index], hi = call.ranges[2 * index + 1];
  int64_t last = 0;  // row
  TORCH_CHECK_VALUE(lo <= hi && !__builtin_sub_overflow(hi, lo, &last), "[attention] the range of ", kNames[at],
                    " must be lo <= hi, got ", lo, "..", hi);
  const int64_t dimensions = at == kBias ? 2 : 3;
  TORCH_CHECK_VALUE(rows.dim() == dimensions && rows.sym_size(1) - 1 == last, "[attention] ", kNames[at], " must have ",
                    dimensions, " dimensions and a row for each of the distances ", lo, "..", hi, ", got ",
                    rows.sym_sizes());
}

void check_sizes(const AttentionCall& call, Input at, const SymSizes& sizes) {
  const at::Tensor& term = call.inputs[at];
  if (!term.defined()) return;
  TORCH_CHECK_VALUE(has_sizes(term, sizes), "[attention] ", kNames[at], " must be ", c10::SymIntArrayRef(sizes),
                    ", got ", term.sym_sizes());
}

void check_terms(const AttentionCall& call) {
  const c10::SymInt queries = call.q().sym_size(1), keys = call.k().sym_size(1);
  const c10::SymInt heads = call.q().sym_size(2), head_dim = call.q().sym_size(3);
  const at::ScalarType dtype = row_dtype(call.q().scalar_type());
  for (size_t i = 0; i < kInputs; ++i) {
    const at::Tensor& x = call.inputs[i];
    if (!x.defined()) continue;
    check_device(call, x, kNames[i]);
    TORCH_CHECK_VALUE(i <= kV || x.scalar_type() == dtype, "[attention] ", kNames[i], " must be ", dtype,
                      " for data of ", call.q().scalar_type(), ", got ", x.scalar_type());
  }
  check_rotation(call, kQueryCos, queries);
  check_rotation(call, kKeyCos, keys);
  check_rotation(call, kValueCos, keys);
  for (size_t i = 0; i < kTables.size(); ++i) check_table(call, i);
  check_sizes(call, kContentBias, {heads, head_dim});
  check_sizes(call, kPositionBias, {heads, head_dim});
  const at::Tensor &a = call.inputs[kPositionQuery], &c = call.inputs[kPositionKey];
  TORCH_CHECK_VALUE(a.defined() == c.defined(), "[attention] position_query and position_key must be given together, ",
                    "got ", a.defined() ? "position_query" : "position_key", " alone");
  if (a.defined()) {
    const c10::SymInt positions = a.dim() == 3 ? a.sym_size(1) : c10::SymInt(0);
    check_sizes(call, kPositionQuery, {heads, positions, head_dim});
    check_sizes(call, kPositionKey, {heads, positions, head_dim});
  }
  check_sizes(call, kResetRow, {heads});
  check_sizes(call, kResetCol, {heads});
}

void check_broadcasts(const at::Tensor& attend, const SymSizes& scores) {
  bool fits = attend.dim() <= 4;
  for (int64_t i = 0; fits && i < attend.dim(); ++i) {
    const c10::SymInt size = attend.sym_size(-1 - i);
    fits = size == 1 || size == scores[static_cast<size_t>(3 - i)];
  }
  TORCH_CHECK_VALUE(fits, "[attention] attend must broadcast to ", c10::SymIntArrayRef(scores), ", got ",
                    attend.sym_sizes());
}

rf_attention_rotation rotation_args(Borrowed<at::Tensor> cos, Borrowed<at::Tensor> sin) {
  if (!cos->defined()) return {};
  return {data_or_null(cos), data_or_null(sin), cos->size(0), cos->size(2)};
}

rf_attention_table table_args(Borrowed<AttentionCall> call, size_t index) {
  const at::Tensor& rows = call->inputs[kTables[index]];
  if (!rows.defined()) return {};
  return {data_or_null(rows), call->ranges[2 * index], call->ranges[2 * index + 1], rows.size(0),
          rows.dim() == 3 ? rows.size(2) : 1};
}

void set_terms(rf_attention_args& args, Borrowed<AttentionCall> call) {
  const Inputs& x = call->inputs;
  args.layout = parse_layout("attention", call->layout);
  args.rotation_q = rotation_args(x[kQueryCos], x[kQuerySin]);
  args.rotation_k = rotation_args(x[kKeyCos], x[kKeySin]);
  args.rotation_v = rotation_args(x[kValueCos], x[kValueSin]);
  args.u = data_or_null(x[kContentBias]);
  args.w = data_or_null(x[kPositionBias]);
  args.table_k = table_args(call, 0);
  args.table_q = table_args(call, 1);
  args.table_v = table_args(call, 2);
  args.bias = table_args(call, 3);
  args.gate = table_args(call, 4);
  args.a = data_or_null(x[kPositionQuery]);
  args.c = data_or_null(x[kPositionKey]);
  args.positions = x[kPositionQuery].defined() ? x[kPositionQuery].size(1) : 0;
  args.row = data_or_null(x[kResetRow]);
  args.col = data_or_null(x[kResetCol]);
  args.scale = call->scale.value_or(1 / std::sqrt(static_cast<double>(args.head_dim)));
}

}  // namespace

void check_call(const AttentionCall& call) {
  parse_layout("attention", call.layout);
  check_data(call);
  check_positions(call, call.query_positions, "query_positions", call.q().sym_size(1));
  check_positions(call, call.key_positions, "key_positions", call.k().sym_size(1));
  check_terms(call);
  check_packed(call);
  if (!call.attend) return;
  TORCH_CHECK_VALUE(call.attend->scalar_type() == at::kBool, "[attention] attend must be bool, got ",
                    call.attend->scalar_type());
  check_device(call, *call.attend, "attend");
  check_broadcasts(*call.attend,
                   {call.q().sym_size(0), call.q().sym_size(2), call.q().sym_size(1), call.k().sym_size(1)});
}

AttentionCall made_contiguous(const AttentionCall& call) {
  AttentionCall to = call;
  for (size_t i = 0; i < kInputs; ++i) {
    at::Tensor& x = to.inputs[i];
    const bool any_stride = i <= kV && (x.stride(-1) == 1 || x.size(-1) == 1);
    if (x.defined() && !any_stride) x = x.contiguous();
  }
  to.query_positions = call.query_positions.contiguous();
  to.key_positions = call.key_positions.contiguous();
  for (at::Tensor* cu_seqlens : {&to.packed.cu_seqlens_q, &to.packed.cu_seqlens_k}) {
    if (cu_seqlens->defined()) *cu_seqlens = cu_seqlens->to(at::kLong).contiguous();
  }
  if (call.attend)
    to.attend = call.attend->expand({call.q().size(0), call.q().size(2), call.q().size(1), call.k().size(1)});
  return to;
}

rf_attention_args core_args(Borrowed<AttentionCall> ready, Borrowed<at::Tensor> out, Borrowed<at::Tensor> log_sum) {
  const AttentionCall& call = *ready;
  rf_attention_args args{};
  args.struct_size = sizeof args;
  const at::Tensor &q = call.q(), &k = call.k(), &v = call.v();
  args.dtype = *core_dtype(q.scalar_type());
  args.batch = q.size(0), args.queries = q.size(1), args.heads = q.size(2), args.head_dim = q.size(3);
  args.keys = k.size(1), args.key_heads = k.size(2), args.value_dim = v.size(3);
  args.q = data_or_null(q), args.q_stride_b = q.stride(0), args.q_stride_t = q.stride(1), args.q_stride_h = q.stride(2);
  args.k = data_or_null(k), args.k_stride_b = k.stride(0), args.k_stride_t = k.stride(1), args.k_stride_h = k.stride(2);
  args.v = data_or_null(v), args.v_stride_b = v.stride(0), args.v_stride_t = v.stride(1), args.v_stride_h = v.stride(2);
  args.out = out->mutable_data_ptr();
  args.out_stride_b = out->stride(0), args.out_stride_t = out->stride(1), args.out_stride_h = out->stride(2);
  if (log_sum->numel() > 0) args.log_sum = log_sum->mutable_data_ptr<float>();
  args.query_positions = call.query_positions.const_data_ptr<int64_t>();
  args.query_position_stride_b = call.query_positions.size(0) == 1 ? 0 : args.queries;
  args.key_positions = call.key_positions.const_data_ptr<int64_t>();
  args.key_position_stride_b = call.key_positions.size(0) == 1 ? 0 : args.keys;
  set_terms(args, ready);
  if (call.attend) {
    // A mask of one row counts as the same row for all: core takes the form of padding from the strides.
    const auto stride = [&](int64_t dim) { return call.attend->size(dim) == 1 ? 0 : call.attend->stride(dim); };
    args.mask = static_cast<const uint8_t*>(call.attend->const_data_ptr());
    args.mask_stride_b = stride(0), args.mask_stride_h = stride(1);
    args.mask_stride_t = stride(2), args.mask_stride_s = stride(3);
  }
  args.dropout = call.dropout;
  args.seed = static_cast<uint64_t>(call.seed.expect_int());
  args.stream = static_cast<uint64_t>(call.stream.expect_int());
  if (call.window.left != -1) args.window |= RF_WINDOW_LEFT, args.window_left = call.window.left;
  if (call.window.right != -1) args.window |= RF_WINDOW_RIGHT, args.window_right = call.window.right;
  args.cu_seqlens_q = static_cast<const int64_t*>(data_or_null(call.packed.cu_seqlens_q));
  args.cu_seqlens_k = static_cast<const int64_t*>(data_or_null(call.packed.cu_seqlens_k));
  args.sequences = args.cu_seqlens_q == nullptr ? 0 : call.packed.cu_seqlens_q.size(0) - 1;
  return args;
}

rf_attention_grads core_grads(Borrowed<at::Tensor> grad_out, Borrowed<Inputs> grads) {
  std::array<void*, kInputs> data{};
  for (size_t i = 0; i < kInputs; ++i) data[i] = mutable_or_null((*grads)[i]);
  rf_attention_grads g{};
  g.struct_size = sizeof g;
  g.out = grad_out->const_data_ptr();
  g.out_stride_b = grad_out->stride(0), g.out_stride_t = grad_out->stride(1), g.out_stride_h = grad_out->stride(2);
  g.q = data[kQ], g.k = data[kK], g.v = data[kV];
  g.cos_q = data[kQueryCos], g.sin_q = data[kQuerySin];
  g.cos_k = data[kKeyCos], g.sin_k = data[kKeySin];
  g.cos_v = data[kValueCos], g.sin_v = data[kValueSin];
  g.u = data[kContentBias], g.w = data[kPositionBias];
  g.table_k = data[kKeyTable], g.table_q = data[kQueryTable], g.table_v = data[kValueTable];
  g.bias = data[kBias], g.gate = data[kGate];
  g.a = data[kPositionQuery], g.c = data[kPositionKey];
  g.row = data[kResetRow], g.col = data[kResetCol];
  return g;
}

}  // namespace rf::ops
