// Argument rules of linear attention (see the header).
#include "linear_attention/checks.h"

#include <cmath>
#include <utility>

#include "common/argument_checks.h"
#include "common/element.h"
#include "common/error.h"
#include "linear_attention/sequence.h"

namespace rf::core {
namespace {

constexpr const char* kWhere = "linear_attention";

void check_choices(const rf_linear_attention_args& x) {
  require(element_bytes(x.dtype) != 0, kWhere, "dtype must be RF_F32, RF_F64, RF_BF16 or RF_F16, got ",
          static_cast<int>(x.dtype));
  require(x.direction == RF_LINEAR_BIDIRECTIONAL || x.direction == RF_LINEAR_CAUSAL, kWhere,
          "direction must be RF_LINEAR_BIDIRECTIONAL or RF_LINEAR_CAUSAL, got ", static_cast<int>(x.direction));
  require(x.denominator == RF_DENOMINATOR_PLAIN || x.denominator == RF_DENOMINATOR_ROTATED, kWhere,
          "denominator must be RF_DENOMINATOR_PLAIN or RF_DENOMINATOR_ROTATED, got ", static_cast<int>(x.denominator));
  require(x.feature_map >= RF_FEATURES_GIVEN && x.feature_map <= RF_FEATURES_RELU, kWhere,
          "feature_map must be RF_FEATURES_GIVEN, RF_FEATURES_ELU_PLUS_ONE or RF_FEATURES_RELU, got ",
          static_cast<int>(x.feature_map));
  require(std::isfinite(x.eps) && x.eps >= 0, kWhere, "eps must be finite and >= 0, got ", x.eps);
}

void check_extents(const rf_linear_attention_args& x) {
  for (const auto& [extent, name] : {std::pair{x.batch, "batch"}, {x.queries, "queries"}, {x.keys, "keys"}}) {
    require(extent >= 0, kWhere, name, " must be >= 0, got ", extent);
  }
  for (const auto& [extent, name] : {std::pair{x.heads, "heads"},
                                     {x.key_heads, "key_heads"},
                                     {x.features, "features"},
                                     {x.value_dim, "value_dim"}}) {
    require(extent >= 1, kWhere, name, " must be >= 1, got ", extent);
  }
  require(x.heads % x.key_heads == 0, kWhere, "heads must be a multiple of key_heads = ", x.key_heads, ", got ",
          x.heads);
  check_size(kWhere, {x.batch, x.queries, x.heads, x.features}, "q");
  check_size(kWhere, {x.batch, x.keys, x.key_heads, x.features}, "k");
  check_size(kWhere, {x.batch, x.keys, x.key_heads, x.value_dim}, "v");
  check_size(kWhere, {x.batch, x.queries, x.heads, x.value_dim}, "out");
  // Work space has several sums with padded rows, and the state has one column more.
  constexpr int64_t kMaxWidth = int64_t{1} << 24;
  require(x.features <= kMaxWidth, kWhere, "features must be <= 2^24, got ", x.features);
  require(x.value_dim <= kMaxWidth, kWhere, "value_dim must be <= 2^24, got ", x.value_dim);
  check_size(kWhere, {x.batch, x.key_heads, x.features, x.value_dim + 1}, "state");
}

void check_arrays(const rf_linear_attention_args& x) {
  const int64_t queries = x.batch * x.queries * x.heads, keys = x.batch * x.keys * x.heads;
  const int64_t bytes = element_bytes(x.dtype);
  check_pointer(kWhere, x.q, queries, bytes, "q");
  check_pointer(kWhere, x.k, keys, bytes, "k");
  check_pointer(kWhere, x.v, keys, bytes, "v");
  check_reach(kWhere, {{x.batch, x.q_stride_b}, {x.queries, x.q_stride_t}, {x.heads, x.q_stride_h}}, "q");
  check_reach(kWhere, {{x.batch, x.k_stride_b}, {x.keys, x.k_stride_t}, {x.key_heads, x.k_stride_h}}, "k");
  check_reach(kWhere, {{x.batch, x.v_stride_b}, {x.keys, x.v_stride_t}, {x.key_heads, x.v_stride_h}}, "v");
  check_reach(kWhere, {{x.batch, x.out_stride_b}, {x.queries, x.out_stride_t}, {x.heads, x.out_stride_h}}, "out");
  check_reach(kWhere, {{x.batch, x.key_mask_stride_b}, {x.keys, x.key_mask_stride_s}}, "key_mask");
  check_pointer(kWhere, x.denominators, 0, sizeof(float), "denominators");
}

void check_state(const rf_linear_attention_args& x) {
  if (x.state == nullptr) return;
  check_pointer(kWhere, x.state, 0, sizeof(double), "state");
  require(x.direction == RF_LINEAR_CAUSAL, kWhere, "direction must be RF_LINEAR_CAUSAL with a state, got ",
          static_cast<int>(x.direction));
  for (int64_t i = 0; i < sequence_count(x); ++i) {
    const Sequence of = sequence_of(x, i);
    require(of.queries == of.keys, kWhere, "queries must equal keys = ", of.keys, " with a state, got ", of.queries);
  }
  if (x.key_exponents == nullptr) return;
  check_pointer(kWhere, x.state_exponents, sequence_count(x) * x.key_heads, sizeof(double), "state_exponents");
}

template <class Number>
void check_exponents_of(const rf_linear_attention_args& x, const Sequence& of) {
  const auto* all = static_cast<const Number*>(x.key_exponents) + of.entry * x.keys * x.key_heads;
  for (int64_t h = 0; h < x.key_heads; ++h) {
    Number least = -INFINITY;
    if (x.state != nullptr) least = static_cast<Number>(x.state_exponents[of.number * x.key_heads + h]);
    for (int64_t n = of.first_key; n < of.first_key + of.keys; ++n) {
      const Number own = all[n * x.key_heads + h];
      require(own >= least && own < INFINITY, kWhere,
              "key_exponents must be below infinity and not fall from key to key, got ", own, " after ", least);
      least = own;
    }
  }
}

void check_exponents(const rf_linear_attention_args& x) {
  if (x.key_exponents == nullptr) return;
  require(x.direction == RF_LINEAR_CAUSAL, kWhere, "direction must be RF_LINEAR_CAUSAL with key_exponents, got ",
          static_cast<int>(x.direction));
  require(x.feature_map == RF_FEATURES_GIVEN, kWhere, "feature_map must be RF_FEATURES_GIVEN with key_exponents, got ",
          static_cast<int>(x.feature_map));
  check_pointer(kWhere, x.key_exponents, 0, row_element_bytes(x.dtype), "key_exponents");
  for (int64_t i = 0; i < sequence_count(x); ++i) {
    const Sequence of = sequence_of(x, i);
    x.dtype == RF_F64 ? check_exponents_of<double>(x, of) : check_exponents_of<float>(x, of);
  }
}

}  // namespace

void check_linear_attention(const rf_linear_attention_args& x) {
  check_choices(x);
  check_extents(x);
  check_arrays(x);
  const RotatedData rotated = {x.dtype, x.layout, x.batch, x.features};
  check_rotation(kWhere, rotated, x.query, "query");
  check_rotation(kWhere, rotated, x.key, "key");
  check_packing(kWhere, packing_of(x));
  check_state(x);
  check_exponents(x);
  const int64_t outputs = x.batch * x.queries * x.heads;
  check_pointer(kWhere, x.out, outputs, element_bytes(x.dtype), "out");
}

void check_linear_attention_grads(const rf_linear_attention_args& x, const rf_linear_attention_grads& grads,
                                  bool in_loops) {
  require(x.state == nullptr, kWhere, "state must be NULL in the backward, got one");
  const int64_t outputs = x.batch * x.queries * x.heads, bytes = element_bytes(x.dtype);
  check_pointer(kWhere, grads.out, outputs, bytes, "grads.out");
  check_reach(kWhere, {{x.batch, grads.out_stride_b}, {x.queries, grads.out_stride_t}, {x.heads, grads.out_stride_h}},
              "grads.out");
  if (!in_loops) check_pointer(kWhere, x.denominators, outputs, sizeof(float), "denominators");
  check_pointer(kWhere, grads.q, 0, bytes, "grads.q");
  check_pointer(kWhere, grads.k, 0, bytes, "grads.k");
  check_pointer(kWhere, grads.v, 0, bytes, "grads.v");
}

}  // namespace rf::core
