// Attention over terms through rf_attention_forward and rf_attention_backward (rf/ops/attention_ref.h). Tensors become
// contiguous float64 outside the autograd function, so that their gradients return to their own dtypes by autograd.
#include "rf/ops/attention_ref.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "rf/attention.h"
#include "status.h"

namespace rf::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The differentiable inputs, in this order wherever they are a list.
enum Input : size_t {
  kQ,
  kK,
  kV,
  kQueryCos,
  kQuerySin,
  kKeyCos,
  kKeySin,
  kValueCos,
  kValueSin,
  kContentBias,
  kPositionBias,
  kKeyTable,
  kQueryTable,
  kValueTable,
  kBias,
  kGate,
  kPositionQuery,
  kPositionKey,
  kResetRow,
  kResetCol,
  kInputs
};

// What a call has besides the differentiable inputs: tables hold only their distances here.
struct Call {
  std::array<bool, kInputs> given{};  // which of the inputs there are
  Terms terms;
  at::Tensor query_positions, key_positions;
  at::Tensor attend;  // undefined, or expanded to [B,H,T,S]
  TokenWindow window;
};

void check_shape(const at::Tensor& tensor, const char* name, bool good, const char* rule) {
  TORCH_CHECK_VALUE(good, "[attention] ", name, " must be ", rule, ", got ", tensor.sizes());
}

void check_on_cpu(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), "[attention] ", name,
                    " must be on the CPU, where the reference runs, got ", tensor.device());
}

void check_data(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  for (const auto& [tensor, name] : {std::pair{&q, "q"}, {&k, "k"}, {&v, "v"}}) {
    TORCH_CHECK_VALUE(tensor->defined() && tensor->dim() == 4 && at::isFloatingType(tensor->scalar_type()),
                      "[attention] ", name, " must be floating-point [batch, tokens, heads, size], got ",
                      tensor->defined() ? tensor->toString() : "nothing", " of shape ",
                      tensor->defined() ? tensor->sizes() : at::IntArrayRef());
  }
  check_shape(k, "k", k.size(0) == q.size(0) && k.size(3) == q.size(3), "[batch, keys, key_heads, head_dim] as of q");
  check_shape(v, "v", v.size(0) == k.size(0) && v.size(1) == k.size(1) && v.size(2) == k.size(2),
              "[batch, keys, key_heads, value_dim] as of k");
}

void check_positions(const at::Tensor& positions, const char* name, int64_t batch, int64_t tokens) {
  TORCH_CHECK_VALUE(positions.defined() && positions.scalar_type() == at::kLong, "[attention] ", name,
                    " must be int64, got ", positions.defined() ? positions.toString() : "nothing");
  TORCH_CHECK_VALUE(
      positions.dim() == 2 && (positions.size(0) == 1 || positions.size(0) == batch) && positions.size(1) == tokens,
      "[attention] ", name, " must be [1 or ", batch, ", ", tokens, "], got ", positions.sizes());
  check_on_cpu(positions, name);
}

void check_rotation(const Rotation& rotation, const char* name, int64_t tokens) {
  if (!rotation.defined()) return;
  TORCH_CHECK_VALUE(rotation.sin.defined(), "[attention] the rotation of the ", name,
                    " must have both cos and sin, got cos alone");
  check_shape(rotation.cos, name, rotation.cos.dim() == 3 && rotation.cos.size(1) == tokens,
              "rotated by rows [1 or batch, tokens, R/2]");
  check_shape(rotation.sin, name, rotation.sin.sizes() == rotation.cos.sizes(), "rotated by sin of the shape of cos");
}

void check_table(const DistanceTable& table, const char* name, int64_t dimensions) {
  if (!table.defined()) return;
  TORCH_CHECK_VALUE(table.rows.dim() == dimensions && table.rows.size(1) == table.hi - table.lo + 1, "[attention] ",
                    name, " must have ", dimensions, " dimensions and ", table.hi - table.lo + 1,
                    " rows for distances ", table.lo, "..", table.hi, ", got ", table.rows.sizes());
}

void check_sizes(const at::Tensor& term, const char* name, at::IntArrayRef sizes) {
  TORCH_CHECK_VALUE(!term.defined() || term.sizes() == sizes, "[attention] ", name, " must be ", sizes, ", got ",
                    term.sizes());
}

void check_terms(const Terms& terms, const at::Tensor& q, const at::Tensor& k) {
  TORCH_CHECK_VALUE(terms.layout == "pairs" || terms.layout == "halves",
                    "[attention] layout must be \"pairs\" or \"halves\", got \"", terms.layout, "\"");
  check_rotation(terms.query, "queries", q.size(1));
  check_rotation(terms.key, "keys", k.size(1));
  check_rotation(terms.value, "values", k.size(1));
  check_table(terms.key_table, "key_table", 3);
  check_table(terms.query_table, "query_table", 3);
  check_table(terms.value_table, "value_table", 3);
  check_table(terms.bias, "bias", 2);
  check_table(terms.gate, "gate", 3);
  const int64_t heads = q.size(2), head_dim = q.size(3);
  check_sizes(terms.content_bias_HD, "content_bias", {heads, head_dim});
  check_sizes(terms.position_bias_HD, "position_bias", {heads, head_dim});
  const at::Tensor& a = terms.position_query_HPD;
  if (a.defined()) {
    check_shape(a, "position_query", a.dim() == 3, "[heads, positions, head_dim]");
    check_sizes(a, "position_query", {heads, a.size(1), head_dim});
    check_sizes(terms.position_key_HPD, "position_key", a.sizes());
  }
  check_sizes(terms.reset_row_H, "reset_row", {heads});
  check_sizes(terms.reset_col_H, "reset_col", {heads});
}

variable_list inputs_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Terms& t) {
  return {q,
          k,
          v,
          t.query.cos,
          t.query.sin,
          t.key.cos,
          t.key.sin,
          t.value.cos,
          t.value.sin,
          t.content_bias_HD,
          t.position_bias_HD,
          t.key_table.rows,
          t.query_table.rows,
          t.value_table.rows,
          t.bias.rows,
          t.gate.rows,
          t.position_query_HPD,
          t.position_key_HPD,
          t.reset_row_H,
          t.reset_col_H};
}

const void* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

rf_attention_rotation rotation_args(const at::Tensor& cos, const at::Tensor& sin) {
  if (!cos.defined()) return {};
  return {data_of(cos), data_of(sin), cos.size(0), cos.size(2)};
}

rf_attention_table table_args(const at::Tensor& rows, const DistanceTable& table) {
  if (!rows.defined()) return {};
  return {data_of(rows), table.lo, table.hi, rows.size(0), rows.dim() == 3 ? rows.size(2) : 1};
}

void set_terms(rf_attention_args& args, const variable_list& x, const Terms& terms) {
  args.layout = terms.layout == "pairs" ? RF_ROPE_PAIRS : RF_ROPE_HALVES;
  args.rotation_q = rotation_args(x[kQueryCos], x[kQuerySin]);
  args.rotation_k = rotation_args(x[kKeyCos], x[kKeySin]);
  args.rotation_v = rotation_args(x[kValueCos], x[kValueSin]);
  args.u = data_of(x[kContentBias]);
  args.w = data_of(x[kPositionBias]);
  args.table_k = table_args(x[kKeyTable], terms.key_table);
  args.table_q = table_args(x[kQueryTable], terms.query_table);
  args.table_v = table_args(x[kValueTable], terms.value_table);
  args.bias = table_args(x[kBias], terms.bias);
  args.gate = table_args(x[kGate], terms.gate);
  args.a = data_of(x[kPositionQuery]);
  args.c = data_of(x[kPositionKey]);
  args.positions = x[kPositionQuery].defined() ? x[kPositionQuery].size(1) : 0;
  args.row = data_of(x[kResetRow]);
  args.col = data_of(x[kResetCol]);
  args.scale = terms.scale.value_or(1 / std::sqrt(static_cast<double>(args.head_dim)));
}

// The arguments of the C functions but for out. x: the inputs, contiguous and float64.
rf_attention_args make_args(const variable_list& x, const Call& call) {
  rf_attention_args args{};
  args.struct_size = sizeof args;
  args.dtype = RF_F64;
  const at::Tensor &q = x[kQ], &k = x[kK], &v = x[kV];
  args.batch = q.size(0), args.queries = q.size(1), args.heads = q.size(2), args.head_dim = q.size(3);
  args.keys = k.size(1), args.key_heads = k.size(2), args.value_dim = v.size(3);
  args.q = data_of(q), args.q_stride_b = q.stride(0), args.q_stride_t = q.stride(1), args.q_stride_h = q.stride(2);
  args.k = data_of(k), args.k_stride_b = k.stride(0), args.k_stride_t = k.stride(1), args.k_stride_h = k.stride(2);
  args.v = data_of(v), args.v_stride_b = v.stride(0), args.v_stride_t = v.stride(1), args.v_stride_h = v.stride(2);
  args.query_positions = call.query_positions.const_data_ptr<int64_t>();
  args.query_position_stride_b = call.query_positions.size(0) == 1 ? 0 : args.queries;
  args.key_positions = call.key_positions.const_data_ptr<int64_t>();
  args.key_position_stride_b = call.key_positions.size(0) == 1 ? 0 : args.keys;
  set_terms(args, x, call.terms);
  if (call.attend.defined()) {
    args.mask = static_cast<const uint8_t*>(call.attend.const_data_ptr());
    args.mask_stride_b = call.attend.stride(0), args.mask_stride_h = call.attend.stride(1);
    args.mask_stride_t = call.attend.stride(2), args.mask_stride_s = call.attend.stride(3);
  }
  args.window_left = call.window.left, args.window_right = call.window.right;
  return args;
}

rf_attention_grads make_grads(const at::Tensor& grad_out, const variable_list& grads) {
  std::array<void*, kInputs> data{};
  for (size_t i = 0; i < kInputs; ++i) data[i] = grads[i].defined() ? grads[i].mutable_data_ptr() : nullptr;
  rf_attention_grads g{};
  g.struct_size = sizeof g;
  g.out = grad_out.const_data_ptr();
  g.out_stride_b = grad_out.stride(0), g.out_stride_t = grad_out.stride(1), g.out_stride_h = grad_out.stride(2);
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

at::Tensor forward_of(const variable_list& inputs, const Call& call) {
  rf_attention_args args = make_args(inputs, call);
  at::Tensor out = at::empty({args.batch, args.queries, args.heads, args.value_dim}, inputs[kQ].options());
  args.out = out.mutable_data_ptr();
  args.out_stride_b = out.stride(0), args.out_stride_t = out.stride(1), args.out_stride_h = out.stride(2);
  check_status(rf_attention_forward(&args));
  return out;
}

// Autograd knows the inputs that are given only; everything else sees a place for each.
variable_list all_inputs(at::TensorList given_inputs, const std::array<bool, kInputs>& given) {
  variable_list inputs(kInputs);
  size_t next = 0;
  for (size_t i = 0; i < kInputs; ++i) {
    if (given[i]) inputs[i] = given_inputs[next++];
  }
  return inputs;
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList given_inputs, const Call& call) {
    at::Tensor out = forward_of(all_inputs(given_inputs, call.given), call);
    variable_list saved = {call.query_positions, call.key_positions, call.attend};
    saved.insert(saved.end(), given_inputs.begin(), given_inputs.end());
    ctx->save_for_backward(std::move(saved));
    save_call(ctx, call);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad_outs) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                                "[attention] create_graph must be false: the reference has first derivatives only, got "
                                "true. Hint: the explicit path has derivatives of any order");
    const variable_list saved = ctx->get_saved_variables();
    const Call call = saved_call(ctx, saved);
    const variable_list inputs = all_inputs(at::TensorList(saved).slice(3), call.given);
    variable_list grads(kInputs), given_grads;
    for (size_t i = 0; i < kInputs; ++i) {
      if (!call.given[i]) continue;
      if (ctx->needs_input_grad(given_grads.size())) grads[i] = at::empty_like(inputs[i]);
      given_grads.push_back(grads[i]);
    }
    const rf_attention_args args = make_args(inputs, call);
    const at::Tensor grad_out = grad_outs[0].contiguous();
    const rf_attention_grads grad_args = make_grads(grad_out, grads);
    check_status(rf_attention_backward(&args, &grad_args));
    given_grads.emplace_back();  // of the call
    return given_grads;
  }

  // What is not a tensor crosses from forward to backward as plain values.
  static void save_call(AutogradContext* ctx, const Call& call) {
    const Terms& terms = call.terms;
    ctx->saved_data["given"] = std::vector<int64_t>(call.given.begin(), call.given.end());
    ctx->saved_data["layout"] = terms.layout;
    ctx->saved_data["scale"] = terms.scale;
    ctx->saved_data["ranges"] = std::vector<int64_t>{
        terms.key_table.lo,   terms.key_table.hi, terms.query_table.lo, terms.query_table.hi, terms.value_table.lo,
        terms.value_table.hi, terms.bias.lo,      terms.bias.hi,        terms.gate.lo,        terms.gate.hi};
    ctx->saved_data["window"] = std::vector<int64_t>{call.window.left, call.window.right};
  }
  static Call saved_call(AutogradContext* ctx, const variable_list& saved) {
    Call call{{}, {}, saved[0], saved[1], saved[2], {}};
    const std::vector<int64_t> given = ctx->saved_data["given"].toIntVector();
    std::copy(given.begin(), given.end(), call.given.begin());
    call.terms.layout = ctx->saved_data["layout"].toStringRef();
    call.terms.scale = ctx->saved_data["scale"].toOptional<double>();
    const std::vector<int64_t> ranges = ctx->saved_data["ranges"].toIntVector();
    DistanceTable* const tables[] = {&call.terms.key_table, &call.terms.query_table, &call.terms.value_table,
                                     &call.terms.bias, &call.terms.gate};
    for (size_t i = 0; i < std::size(tables); ++i) tables[i]->lo = ranges[2 * i], tables[i]->hi = ranges[2 * i + 1];
    const std::vector<int64_t> window = ctx->saved_data["window"].toIntVector();
    call.window = {window[0], window[1]};
    return call;
  }
};

}  // namespace

at::Tensor attention_ref(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                         const Terms& terms, const at::Tensor& query_positions, const at::Tensor& key_positions,
                         const at::Tensor& attend, TokenWindow window) {
  check_data(q_BTHD, k_BSHD, v_BSHD);
  check_positions(query_positions, "query_positions", q_BTHD.size(0), q_BTHD.size(1));
  check_positions(key_positions, "key_positions", q_BTHD.size(0), k_BSHD.size(1));
  check_terms(terms, q_BTHD, k_BSHD);
  Call call{{}, terms, query_positions.contiguous(), key_positions.contiguous(), {}, window};
  if (attend.defined()) {
    TORCH_CHECK_VALUE(attend.scalar_type() == at::kBool, "[attention] attend must be bool, got ", attend.scalar_type());
    check_on_cpu(attend, "attend");
    call.attend = attend.expand({q_BTHD.size(0), q_BTHD.size(2), q_BTHD.size(1), k_BSHD.size(1)});
  }
  const variable_list inputs = inputs_of(q_BTHD, k_BSHD, v_BSHD, terms);
  variable_list given_inputs;
  for (size_t i = 0; i < kInputs; ++i) {
    call.given[i] = inputs[i].defined();
    if (!call.given[i]) continue;
    check_on_cpu(inputs[i], i <= kV ? "q, k and v" : "terms");
    given_inputs.push_back(inputs[i].to(at::kDouble).contiguous());
  }
  return AttentionFunction::apply(at::TensorList(given_inputs), call).to(q_BTHD.scalar_type());
}

}  // namespace rf::ops
