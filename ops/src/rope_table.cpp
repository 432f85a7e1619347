// roformer::rope_table on CPU and Meta tensors: the rows of a rotation, by core's tables (rf/rope.h). A call of core
// uses the same frequencies for all tokens, so tokens that share a row of frequencies go to core together: all tokens
// for freqs [R/2], the T tokens of a sequence for freqs [B, 1, R/2], one for [B, T, R/2].
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <type_traits>

#include "core_call.h"
#include "dispatch.h"
#include "rf/rope.h"

namespace rf::ops {
namespace {

constexpr int64_t kMaxExactPosition = int64_t{1} << 53;
// core divides larger groups among threads; of smaller groups, a thread takes this many elements together.
constexpr int64_t kThreadElements = 4096;

void check_freqs(const at::Tensor& positions, const at::Tensor& freqs, const char* name) {
  check_device("rope_table", name, freqs, "positions", positions);
  bool fits = freqs.dim() == 1 || freqs.dim() == positions.dim() + 1;
  for (int64_t d = 0; fits && d + 1 < freqs.dim(); ++d) {
    fits = freqs.sym_size(d) == 1 || freqs.sym_size(d) == positions.sym_size(d);
  }
  TORCH_CHECK_VALUE(freqs.scalar_type() == at::kDouble && fits && freqs.sym_size(-1) > 0, "[rope_table] ", name,
                    " must be float64 of shape [rotary_dim/2], or [.., rotary_dim/2] with the dimensions of positions ",
                    positions.sym_sizes(), " or 1, got ", freqs.scalar_type(), " of shape ", freqs.sym_sizes());
}

void check_arguments(const RopeTableCall& call) {
  const auto& [positions, freqs, freqs_lo, scale, dtype] = call;
  const at::ScalarType type = positions.scalar_type();
  TORCH_CHECK_VALUE(at::isIntegralType(type, /*includeBool=*/false) || type == at::kDouble,
                    "[rope_table] positions must be integers or float64, got ", type);
  check_freqs(positions, freqs, "freqs");
  if (freqs_lo.defined()) {
    check_freqs(positions, freqs_lo, "freqs_lo");
    TORCH_CHECK_VALUE(freqs_lo.sym_sizes() == freqs.sym_sizes(), "[rope_table] freqs_lo must have the shape of freqs, ",
                      freqs.sym_sizes(), ", got ", freqs_lo.sym_sizes());
  }
  TORCH_CHECK_VALUE(std::isfinite(scale) && scale != 0, "[rope_table] scale must be finite and not 0, got ", scale);
  TORCH_CHECK_VALUE(dtype == at::kFloat || dtype == at::kDouble, "[rope_table] dtype must be float32 or float64, got ",
                    dtype);
}

// Positions as contiguous float64, which represents them exactly.
at::Tensor exact_positions(const at::Tensor& positions) {
  if (positions.scalar_type() == at::kDouble) return positions.contiguous();
  const at::Tensor whole = positions.to(at::kLong).contiguous();
  const at::Tensor exact = at::empty(whole.sizes(), whole.options().dtype(at::kDouble));
  const auto* from = whole.const_data_ptr<int64_t>();
  auto* to = exact.mutable_data_ptr<double>();
  for (int64_t i = 0; i < whole.numel(); ++i) {
    TORCH_CHECK_VALUE(from[i] >= -kMaxExactPosition && from[i] <= kMaxExactPosition,
                      "[rope_table] positions must be within 2^53, got ", from[i]);
    to[i] = static_cast<double>(from[i]);
  }
  return exact;
}

// Frequencies [groups, R/2], each for `tokens` consecutive tokens.
struct Groups {
  at::Tensor hi, lo;
  int64_t count = 1, tokens = 1;
};

Groups group_tokens(const at::Tensor& positions, const at::Tensor& freqs, const at::Tensor& freqs_lo) {
  Groups groups;
  int64_t outer = freqs.dim() - 1;  // dimensions of positions in which frequencies differ
  while (outer > 0 && freqs.size(outer - 1) == 1) --outer;
  std::vector<int64_t> shape(freqs.sizes().begin(), freqs.sizes().end());
  for (int64_t d = 0; d < positions.dim(); ++d) {
    (d < outer ? groups.count : groups.tokens) *= positions.size(d);
    if (d < outer) shape[d] = positions.size(d);
  }
  groups.hi = freqs.expand(shape).contiguous();
  if (freqs_lo.defined()) groups.lo = freqs_lo.expand(shape).contiguous();
  return groups;
}

template <class T>
void fill(const Groups& groups, double scale, const at::Tensor& positions, const at::Tensor& cos,
          const at::Tensor& sin) {
  const int64_t num_freqs = groups.hi.size(-1), elements = groups.tokens * num_freqs;
  const double* hi = groups.hi.const_data_ptr<double>();
  const double* lo = groups.lo.defined() ? groups.lo.const_data_ptr<double>() : nullptr;
  const double* position = positions.const_data_ptr<double>();
  T* c = cos.mutable_data_ptr<T>();
  T* s = sin.mutable_data_ptr<T>();
  const auto fill_groups = [&](int64_t first, int64_t last) {
    for (int64_t g = first; g < last; ++g) {
      constexpr auto kTable = [] {
        if constexpr (std::is_same_v<T, float>) {
          return rf_rope_table_f32;
        } else {
          return rf_rope_table_f64;
        }
      }();
      call_core(kTable, hi + g * num_freqs, lo == nullptr ? nullptr : lo + g * num_freqs, num_freqs, scale,
                position + g * groups.tokens, groups.tokens, c + g * elements, s + g * elements);
    }
  };
  if (elements > kThreadElements) return fill_groups(0, groups.count);
  at::parallel_for(0, groups.count, kThreadElements / elements, fill_groups);
}

RopeTableOperator::Results rope_table_cpu(const RopeTableCall& call) {
  check_arguments(call);
  const auto& [positions, freqs, freqs_lo, scale, dtype] = call;
  std::vector<int64_t> shape(positions.sizes().begin(), positions.sizes().end());
  shape.push_back(freqs.size(-1));
  const at::Tensor cos = at::empty(shape, freqs.options().dtype(dtype)), sin = at::empty_like(cos);
  if (cos.numel() == 0) return {cos, sin};
  const Groups groups = group_tokens(positions, freqs, freqs_lo);
  const at::Tensor exact = exact_positions(positions);
  if (dtype == at::kDouble) {
    fill<double>(groups, scale, exact, cos, sin);
  } else {
    fill<float>(groups, scale, exact, cos, sin);
  }
  return {cos, sin};
}

RopeTableOperator::Results rope_table_meta(const RopeTableCall& call) {
  check_arguments(call);
  std::vector<c10::SymInt> shape = call.positions.sym_sizes().vec();
  shape.push_back(call.freqs.sym_size(-1));
  const at::TensorOptions options = call.freqs.options().dtype(call.dtype);
  return {at::empty_symint(shape, options), at::empty_symint(shape, options)};
}

}  // namespace

std::pair<at::Tensor, at::Tensor> rope_table(const at::Tensor& positions, const at::Tensor& freqs,
                                             const at::Tensor& freqs_lo, double scale, at::ScalarType dtype) {
  const auto [cos, sin] = dispatch<RopeTableOperator>({positions, freqs, freqs_lo, scale, dtype});
  return {cos, sin};
}

TORCH_LIBRARY_IMPL(roformer, CPU, library) { library.impl("rope_table", boxed<rope_table_cpu>()); }

TORCH_LIBRARY_IMPL(roformer, Meta, library) { library.impl("rope_table", boxed<rope_table_meta>()); }

}  // namespace rf::ops
