// Which path computes attention (rf/nn/attention.h), and packed sequences: in one call of a kernel, or one after the
// other.
#include "rf/nn/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <utility>

#include "attention_state.h"
#include "known_values.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/nn/devices.h"
#include "rf/ops/attention.h"
#include "rf/ops/kernels.h"
#include "rf/ops/ops.h"

namespace rf::nn {

namespace {

// Autocast casts the inputs of products only; a kernel with products inside gets the dtype that they would get.
at::ScalarType product_dtype(const at::Tensor& q_BTHD) {
  const at::ScalarType given = q_BTHD.scalar_type();
  return given == at::kDouble ? given : autocast_dtype(q_BTHD.device()).value_or(given);
}

// The end of the message "kernel fused needs ..." for a call that the fused kernel cannot compute; empty: it can.
std::string missing_for_fused(at::Device device, at::ScalarType dtype) {
  if (const std::string missing = ops::missing_on(device); !missing.empty()) return missing;
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf) {
    return fmt::format("float32, bfloat16 or float16, got {}", toString(dtype));
  }
  if (is_inside_transform()) return "a call outside the transforms of torch.func, got one inside";
  if (ops::reference_is_asked_for()) return "RF_KERNEL not to be ref, got RF_KERNEL=ref";
  return {};
}

// With RF_KERNEL=ref, "auto" means the loops, which lack dropout and exist only on the CPU.
Kernel choose(Kernel wanted, at::Device device, at::ScalarType dtype, double dropout) {
  if (wanted != Kernel::kAuto && wanted != Kernel::kFused) return wanted;
  const std::string missing = missing_for_fused(device, dtype);
  if (missing.empty()) return Kernel::kFused;
  if (wanted == Kernel::kFused) fail("attention", "kernel fused needs {}", missing);
  return device.is_cpu() && ops::reference_is_asked_for() && dropout == 0 ? Kernel::kRef : Kernel::kExplicit;
}

// Terms that were made for other positions would be read at the wrong rows.
void check_positions_of_terms(const char* name, const at::Tensor& of_terms_BT, const at::Tensor& ids_BT) {
  if (!of_terms_BT.defined() || of_terms_BT.is_same(ids_BT)) return;
  const c10::SymInt rows = of_terms_BT.sym_size(0), ids_rows = ids_BT.sym_size(0);
  const bool rows_fit = rows == 1 || rows == ids_rows || ids_rows == 1;
  if (of_terms_BT.sym_size(1) != ids_BT.sym_size(1) || !rows_fit) {
    fail("attention", "terms must be made for the {} positions of the call, {}, got terms for {}", name,
         c10::str(ids_BT.sym_sizes()), c10::str(of_terms_BT.sym_sizes()));
  }
  if (!of_terms_BT.is_cpu() || !ids_BT.is_cpu()) return;  // a GPU would have to be waited for
  if (!values_are_known(of_terms_BT) || !values_are_known(ids_BT)) return;
  const at::Tensor differ = of_terms_BT.ne(ids_BT).nonzero();
  if (differ.size(0) == 0) return;
  const int64_t row = differ[0][0].item<int64_t>(), token = differ[0][1].item<int64_t>();
  const auto at_place = [&](const at::Tensor& x_BT) {
    return x_BT[std::min(row, x_BT.size(0) - 1)][token].item<int64_t>();
  };
  fail("attention", "terms must be made for the {} positions of the call, {} at row {}, token {}, got terms for {}",
       name, at_place(ids_BT), row, token, at_place(of_terms_BT));
}

// The call for the kernels of core: packed rows become one row of sequences, unless each row has a pair bias, whose
// numbers would then need pairs of different rows; other calls are unchanged.
ops::AttentionCall kernel_call(ops::AttentionCall call, AttentionContext::State& state) {
  if (!state.one_row() || (call.terms.pair_bias.defined() && call.q.sym_size(0) != 1)) {
    call.mask = state.attend();
    return call;
  }
  const int64_t batch = call.q.sym_size(0).guard_int(__FILE__, __LINE__);
  call.cu_seqlens = state.one_row()->cu_seqlens;
  call.query_positions = state.one_row()->query_ids, call.key_positions = state.one_row()->key_ids;
  for (at::Tensor* x : {&call.q, &call.k, &call.v}) *x = as_one_row(*x, batch);
  ops::for_each_term([&](const char*, const char*, auto member) {
    if constexpr (std::is_same_v<decltype(member), Rotation Terms::*>) {
      call.terms.*member = {as_one_row((call.terms.*member).cos, batch), as_one_row((call.terms.*member).sin, batch)};
    }
  });
  if (at::Tensor& scores_BHS = call.terms.key_score; scores_BHS.defined() && batch != 1) {
    scores_BHS = as_one_row(scores_BHS.transpose(1, 2), batch).transpose(1, 2);
  }
  return call;
}

// A kernel's result in the shape of the queries.
at::Tensor in_rows(const at::Tensor& out, const at::Tensor& q_BTHD) {
  const bool is_one_row = out.sym_size(0) != q_BTHD.sym_size(0);
  return is_one_row ? out.squeeze(0).unflatten(0, {q_BTHD.size(0), q_BTHD.size(1)}) : out;
}

at::Tensor fused_attention(ops::AttentionCall call, AttentionContext::State& state) {
  const at::Tensor q_BTHD = call.q;
  const at::ScalarType dtype = product_dtype(q_BTHD);
  const bool is_cast = dtype != q_BTHD.scalar_type();  // without autocast, dtypes that differ are refused
  for (at::Tensor* x : {&call.q, &call.k, &call.v}) {
    if (is_cast) *x = x->to(dtype);
  }
  const at::Tensor out = ops::attention_fused(kernel_call(std::move(call), state));
  return in_rows(out, q_BTHD).to(q_BTHD.scalar_type());
}

// The explicit path for a checked call; 0 for queries without a key.
at::Tensor checked_explicit(const ops::AttentionCall& call, AttentionContext::State& state) {
  const at::Tensor out_BTHD = explicit_attention(call, state);
  const at::Tensor& has_key_BTH1 = state.mask().has_key_BTH1;
  return has_key_BTH1.defined() ? at::where(has_key_BTH1, out_BTHD, 0) : out_BTHD;
}

std::vector<int64_t> numbers_of(const at::Tensor& x) {
  const at::Tensor numbers = x.to(at::kCPU, at::kLong).contiguous();
  const auto* const first = cpu_data<int64_t>(numbers, "cu_seqlens");
  return {first, first + numbers.numel()};
}

// Tokens begin .. begin+count-1 of a side.
struct Slice {
  int64_t begin, count;
  at::Tensor operator()(const at::Tensor& x_BT) const { return x_BT.narrow(1, begin, count); }
  TokenPositions operator()(const TokenPositions& side) const {
    return {.ids = (*this)(side.ids), .first = {}, .end = {}, .device = side.device};
  }
  Rotation operator()(const Rotation& rotation) const {
    return rotation.defined() ? Rotation{(*this)(rotation.cos), (*this)(rotation.sin)} : rotation;
  }
};

// The same for each packed sequence in turn; with dropout, each has its own stream.
at::Tensor explicit_sequences(const ops::AttentionCall& call, AttentionContext::State& state, DropoutKey* key) {
  const std::vector<int64_t> q = numbers_of(call.cu_seqlens.q), k = numbers_of(call.cu_seqlens.k);
  std::vector<at::Tensor> outputs;
  for (size_t i = 1; i < q.size(); ++i) {
    const Slice query{q[i - 1], q[i] - q[i - 1]}, of_keys{k[i - 1], k[i] - k[i - 1]};
    ops::AttentionCall own = call;
    own.q = query(call.q), own.k = of_keys(call.k), own.v = of_keys(call.v);
    own.terms.query = query(call.terms.query);
    own.terms.key = of_keys(call.terms.key);
    own.terms.value = of_keys(call.terms.value);
    for (at::Tensor* scores : {&own.terms.key_score, &own.terms.pair_bias}) {
      if (scores->defined()) *scores = scores->narrow(-1, of_keys.begin, of_keys.count);
    }
    if (at::Tensor& bias = own.terms.pair_bias; bias.defined()) bias = bias.narrow(2, query.begin, query.count);
    if (at::Tensor& prefix = own.window.prefix; prefix.defined()) {
      prefix = prefix.narrow(0, static_cast<int64_t>(i) - 1, 1);
    }
    if (call.dropout > 0 && i > 1) own.stream = key->next_stream();
    AttentionContext::State own_state({query(state.positions.query), of_keys(state.positions.key)}, own.window,
                                      state.kernel);
    outputs.push_back(checked_explicit(own, own_state));
  }
  return outputs.empty() ? checked_explicit(call, state) : at::cat(outputs, 1);
}

// For transforms of torch.func, which know torch's own operators alone.
at::Tensor rotated_by_torch(const at::Tensor& x_BTHD, const Rotation& rotation, const std::string& layout) {
  const auto of_heads = [](const at::Tensor& rows) { return rows.dim() == 3 ? rows.unsqueeze(2) : rows; };
  const at::Tensor cos = of_heads(rotation.cos), sin = of_heads(rotation.sin);
  const int64_t pairs = cos.size(-1), head_dim = x_BTHD.size(-1), side = layout == "pairs" ? -1 : -2;
  const at::Tensor turned = x_BTHD.narrow(-1, 0, 2 * pairs).unflatten(-1, {side == -1 ? pairs : 2, -1});
  const at::Tensor a = turned.select(side, 0), b = turned.select(side, 1);
  const at::Tensor out = at::stack({a * cos - b * sin, b * cos + a * sin}, side).flatten(-2).to(x_BTHD.scalar_type());
  return at::cat({out, x_BTHD.narrow(-1, 2 * pairs, head_dim - 2 * pairs)}, -1);
}

}  // namespace

constexpr std::array<std::string_view, 4> kKernelNames = {"auto", "fused", "explicit", "ref"};  // in Kernel's order

Kernel kernel_of_name(std::string_view name) {
  const auto found = std::find(kKernelNames.begin(), kKernelNames.end(), name);
  if (found != kKernelNames.end()) return static_cast<Kernel>(found - kKernelNames.begin());
  fail("attention", "kernel must be auto, fused, explicit or ref, got {}", io::printable(std::string(name)));
}

std::string_view name_of(Kernel kernel) { return kKernelNames.at(static_cast<size_t>(kernel)); }

Kernel automatic_kernel(at::ScalarType dtype) { return choose(Kernel::kAuto, at::kCPU, dtype, 0); }

at::Tensor rotated(const at::Tensor& x_BTHD, const Rotation& rotation, const std::string& layout) {
  if (!rotation.defined()) return x_BTHD;
  const at::ScalarType dtype = ops::row_dtype(x_BTHD.scalar_type());
  const at::Tensor cos = rotation.cos.to(dtype), sin = rotation.sin.to(dtype);
  if (is_inside_transform()) return rotated_by_torch(x_BTHD, {cos, sin}, layout);
  if (cos.dim() == 3) return ops::rotate(x_BTHD, cos, sin, layout);
  if (cos.size(2) == 1) return ops::rotate(x_BTHD, cos.squeeze(2), sin.squeeze(2), layout);
  // Rows for each head: heads are tokens of one head each.
  const at::Tensor x_BN1D = x_BTHD.flatten(1, 2).unsqueeze(2);
  return ops::rotate(x_BN1D, cos.flatten(1, 2), sin.flatten(1, 2), layout).view(x_BTHD.sizes());
}

at::Tensor heads_first(const at::Tensor& x_BSHD, int64_t heads) {
  const int64_t given = x_BSHD.size(2);
  if (given == heads) return x_BSHD.transpose(1, 2);
  return x_BSHD.transpose(1, 2).unsqueeze(2).expand({-1, -1, heads / given, -1, -1}).flatten(1, 2);
}

double score_scale(const Terms& terms, const at::Tensor& q_BTHD) {
  return terms.scale.value_or(1.0 / std::sqrt(static_cast<double>(q_BTHD.size(3))));
}

at::Tensor attention(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD, const Terms& terms,
                     const AttentionContext& context, double dropout, DropoutKey* key) {
  AttentionContext::State& state = context.state();
  check_positions_of_terms("query", terms.query_positions, state.positions.query.ids);
  check_positions_of_terms("key", terms.key_positions, state.positions.key.ids);
  ops::AttentionCall call{.q = q_BTHD,
                          .k = k_BSHD,
                          .v = v_BSHD,
                          .terms = terms,
                          .query_positions = state.query_ids,
                          .key_positions = state.key_ids,
                          .mask = state.given_mask,
                          .window = state.window,
                          .cu_seqlens = state.cu_seqlens,
                          .dropout = dropout};
  ops::check_attention_devices(call);
  const Kernel kernel = choose(state.kernel, q_BTHD.device(), q_BTHD.scalar_type(), dropout);
  if (kernel == Kernel::kRef && dropout > 0) fail("attention", "dropout must be 0 with kernel ref, got {}", dropout);
  if (dropout > 0) call.seed = static_cast<int64_t>(key->seed), call.stream = key->next_stream();
  if (kernel == Kernel::kFused) return fused_attention(std::move(call), state);
  if (kernel == Kernel::kRef) return in_rows(ops::attention_ref(kernel_call(call, state)), q_BTHD);
  const bool is_packed = call.cu_seqlens.defined();
  if (is_packed || (values_are_known(call.query_positions) && values_are_known(call.q))) ops::check_attention(call);
  return is_packed ? explicit_sequences(call, state, key) : checked_explicit(call, state);
}

}  // namespace rf::nn
