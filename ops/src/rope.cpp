// roformer::rope and roformer::rope_ on CPU and Meta tensors: checks the arguments, presents [.., T, H, D] or
// [.., H, T, D] data to rf_rope_apply as one [B, T, H, D] view, and returns. The rotation itself is core/src's; the
// gradients are in autograd.cpp.
//
// The checks read symbolic sizes, because Meta kernels run under torch.compile with dynamic shapes.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "core_call.h"
#include "dispatch.h"
#include "layout.h"
#include "rf/rope.h"

namespace rf::ops {
namespace {

rf_rope_direction parse_direction(std::string_view direction) {
  return parse_name<rf_rope_direction>(
      "rope", "direction", direction,
      {{"forward", RF_ROPE_FORWARD}, {"transpose", RF_ROPE_TRANSPOSE}, {"inverse", RF_ROPE_INVERSE}});
}

void check_data(const RopeCall& o) {
  const at::Tensor& x = o.x;
  TORCH_CHECK_VALUE(core_dtype(x.scalar_type()), "[rope] x must be float32, float64, bfloat16 or float16, got ",
                    x.scalar_type());
  TORCH_CHECK_VALUE(x.dim() >= 3, "[rope] x must be ",
                    o.heads_first ? "[.., heads, tokens, head_dim] (heads_first)" : "[.., tokens, heads, head_dim]",
                    ", got a tensor of ", x.dim(), " dimensions");
}

void check_frequencies(const RopeCall& o) {
  TORCH_CHECK_VALUE(std::isfinite(o.scale) && o.scale != 0, "[rope] scale must be finite and not 0, got ", o.scale);
  const c10::SymInt head_dim = o.x.sym_size(-1);
  if (o.freqs.defined()) {
    check_device("rope", "freqs", o.freqs, "x", o.x);
    TORCH_CHECK_VALUE(o.base == RopeCall{}.base, "[rope] base must not be given together with freqs, got base ",
                      o.base);
    TORCH_CHECK_VALUE(o.freqs.scalar_type() == at::kDouble && o.freqs.dim() == 1 && o.freqs.sym_size(0) > 0,
                      "[rope] freqs must be float64 of shape [rotary_dim/2], got ", o.freqs.scalar_type(), " of shape ",
                      o.freqs.sym_sizes());
    const c10::SymInt rotated = 2 * o.freqs.sym_size(0);
    TORCH_CHECK_VALUE(!o.rotary_dim || rotated == *o.rotary_dim,
                      "[rope] rotary_dim must be twice the number of freqs, ", rotated, ", or not given, got ",
                      o.rotary_dim.value_or(0));
    TORCH_CHECK_VALUE(rotated <= head_dim, "[rope] freqs must be at most head_dim/2 = ", head_dim / 2, " numbers, got ",
                      o.freqs.sym_size(0));
    return;
  }
  TORCH_CHECK_VALUE(std::isfinite(o.base) && o.base > 0, "[rope] base must be finite and > 0, got ", o.base);
  const c10::SymInt rotated = o.rotary_dim ? c10::SymInt(*o.rotary_dim) : head_dim;
  TORCH_CHECK_VALUE(rotated >= 2 && rotated <= head_dim && rotated % 2 == 0,
                    "[rope] rotary_dim must be even, >= 2 and <= ", head_dim, " (the size of a head), got ", rotated);
}

void check_positions(const RopeCall& o) {
  const at::Tensor &x = o.x, &positions = o.positions;
  check_device("rope", "positions", positions, "x", x);
  const at::ScalarType type = positions.scalar_type();
  TORCH_CHECK_VALUE(at::isIntegralType(type, /*includeBool=*/false) || type == at::kDouble,
                    "[rope] positions must be integers or float64, got ", type);
  const c10::SymInt tokens = x.sym_size(o.heads_first ? -2 : -3);
  if (positions.dim() == 2) {
    c10::SymInt batch = 1;
    for (int64_t i = 0; i < x.dim() - 3; ++i) batch *= x.sym_size(i);
    TORCH_CHECK_VALUE(positions.sym_size(0) == batch && positions.sym_size(1) == tokens,
                      "[rope] positions must be [tokens] or [batch, tokens], here [", tokens, "] or [", batch, ", ",
                      tokens, "], got ", positions.sym_sizes());
  } else {
    TORCH_CHECK_VALUE(positions.dim() == 1 && positions.sym_size(0) == tokens,
                      "[rope] positions must be [tokens] or [batch, tokens] with ", tokens, " tokens, got ",
                      positions.sym_sizes());
  }
}

// [.., T, H, D] or [.., H, T, D] as [B, T, H, D], its last dimension contiguous: a view where the strides allow one.
at::Tensor as_BTHD(const at::Tensor& x, bool heads_first) {
  const at::Tensor rows = x.stride(-1) == 1 ? x : x.contiguous();
  int64_t batch = 1;
  for (int64_t i = 0; i < x.dim() - 3; ++i) batch *= x.size(i);
  const at::Tensor flat = rows.reshape({batch, x.size(-3), x.size(-2), x.size(-1)});
  return heads_first ? flat.transpose(1, 2) : flat;
}

// The parameters of an rf_rope.
struct RopeKey {
  double base;                // of theta_i = base^(-2i/rotary_dim); 0 when freqs are given
  std::vector<double> freqs;  // [rotary_dim/2], or empty
  int64_t rotary_dim;
  double scale;

  bool operator==(const RopeKey&) const = default;
};

RopeKey key_of(const RopeCall& o) {
  if (!o.freqs.defined()) return {o.base, {}, o.rotary_dim.value_or(o.x.size(-1)), o.scale};
  const at::Tensor freqs = o.freqs.contiguous();
  const double* first = freqs.const_data_ptr<double>();
  return {0.0, {first, first + freqs.numel()}, 2 * freqs.numel(), o.scale};
}

std::shared_ptr<rf_rope> create(const RopeKey& key) {
  const int64_t num_freqs = key.rotary_dim / 2;
  std::vector<double> hi = key.freqs, lo(static_cast<size_t>(num_freqs));
  if (hi.empty()) {
    hi.resize(lo.size());
    check_status(rf_rope_frequencies(key.base, key.rotary_dim, hi.data(), lo.data()));
  }
  rf_rope* rope = nullptr;
  check_status(rf_rope_create(hi.data(), lo.data(), num_freqs, key.scale, 0, &rope));
  return {rope, rf_rope_destroy};
}

// The rf_rope objects of this process by their parameters. An rf_rope keeps the frequencies and table rows used so far,
// so a call in the steady state finds its object and builds nothing. At most 64 are kept, and core bounds the total
// bytes of their tables. The least recently used object is removed first; its current users keep it alive.
std::shared_ptr<rf_rope> find_rope(const RopeKey& key) {
  constexpr size_t kMaxEntries = 64;
  struct Registry {
    std::mutex mutex;
    std::list<std::pair<RopeKey, std::shared_ptr<rf_rope>>> entries;  // most recently used first
  };
  static auto& registry = *new Registry;  // never destroyed: threads may still use it at exit
  auto& entries = registry.entries;
  const std::lock_guard lock(registry.mutex);
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == key; });
  if (found != entries.end()) {
    entries.splice(entries.begin(), entries, found);
  } else {
    entries.emplace_front(key, create(key));
    if (entries.size() > kMaxEntries) entries.pop_back();
  }
  return entries.front().second;
}

void apply(const at::Tensor& x_BTHD, const at::Tensor& y_BTHD, const at::Tensor& positions, const RopeCall& o) {
  const bool whole = positions.scalar_type() != at::kDouble;
  const at::Tensor ids = (whole ? positions.to(at::kLong) : positions).contiguous();
  auto args = data_args<rf_rope_args>(x_BTHD, y_BTHD);
  args.layout = parse_layout("rope", o.layout);
  args.direction = parse_direction(o.direction);
  if (ids.scalar_type() == at::kDouble) {
    args.positions_f64 = ids.const_data_ptr<double>();
  } else {
    args.positions_i64 = ids.const_data_ptr<int64_t>();
  }
  args.position_stride_b = ids.dim() == 2 ? ids.size(1) : 0;
  call_core(rf_rope_apply, find_rope(key_of(o)).get(), &args);
}

std::tuple<at::Tensor> rope_cpu(const RopeCall& call) {
  check_rope_arguments(call);
  const at::Tensor& x = call.x;
  at::Tensor y = at::empty(x.sizes(), x.options());
  if (y.numel() > 0) apply(as_BTHD(x, call.heads_first), as_BTHD(y, call.heads_first), call.positions, call);
  return y;
}

std::tuple<> rope_cpu_inplace(const RopeCall& call) {
  check_rope_arguments(call);
  const at::Tensor &x = call.x, &positions = call.positions;
  at::assert_no_internal_overlap(x);
  if (x.numel() == 0) return {};
  const at::Tensor x_BTHD = as_BTHD(x, call.heads_first);
  // Positions that share the memory of x are read before the call changes it.
  apply(x_BTHD, x_BTHD, positions.is_alias_of(x) ? positions.clone() : positions, call);
  if (!x_BTHD.is_alias_of(x)) x.copy_((call.heads_first ? x_BTHD.transpose(1, 2) : x_BTHD).reshape(x.sizes()));
  return {};
}

std::tuple<at::Tensor> rope_meta(const RopeCall& call) {
  check_rope_arguments(call);
  return at::empty_symint(call.x.sym_sizes(), call.x.options());
}

std::tuple<> rope_meta_inplace(const RopeCall& call) {
  check_rope_arguments(call);
  return {};
}

}  // namespace

void check_rope_arguments(const RopeCall& call) {
  parse_layout("rope", call.layout);
  parse_direction(call.direction);
  check_data(call);
  check_frequencies(call);
  check_positions(call);
}

TORCH_LIBRARY_IMPL(roformer, CPU, library) {
  library.impl("rope", boxed<rope_cpu>());
  library.impl("rope_", boxed<rope_cpu_inplace>());
}

TORCH_LIBRARY_IMPL(roformer, Meta, library) {
  library.impl("rope", boxed<rope_meta>());
  library.impl("rope_", boxed<rope_meta_inplace>());
}

}  // namespace rf::ops
