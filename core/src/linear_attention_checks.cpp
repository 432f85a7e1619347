// Argument rules of linear attention (see the header).
#include "linear_attention_checks.h"

#include <cmath>
#include <initializer_list>
#include <utility>

#include "element.h"
#include "error.h"

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

// The bytes of a float64 array must fit in int64.
void check_size(std::initializer_list<int64_t> extents, const char* name) {
  int64_t bytes = sizeof(double);
  for (const int64_t extent : extents) {
    require(!__builtin_mul_overflow(bytes, extent, &bytes), kWhere, "the size of ", name,
            " in bytes must fit in int64, got ", extent, " as one of its extents");
  }
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
  check_size({x.batch, x.queries, x.heads, x.features}, "q");
  check_size({x.batch, x.keys, x.key_heads, x.features}, "k");
  check_size({x.batch, x.keys, x.key_heads, x.value_dim}, "v");
  check_size({x.batch, x.queries, x.heads, x.value_dim}, "out");
  // The sums have padded rows and come several times; the state has a column more.
  constexpr int64_t kMostWidth = int64_t{1} << 24;
  require(x.features <= kMostWidth, kWhere, "features must be <= 2^24, got ", x.features);
  require(x.value_dim <= kMostWidth, kWhere, "value_dim must be <= 2^24, got ", x.value_dim);
  check_size({x.batch, x.key_heads, x.features, x.value_dim + 1}, "state");
}

// Elements between the first and the last that strides reach must fit in int64.
void check_reach(std::initializer_list<std::pair<int64_t, int64_t>> dimensions, const char* name) {
  int64_t reach = 0, step = 0;
  for (const auto& [extent, stride] : dimensions) {
    if (extent == 0) return;
    const bool fits = stride != INT64_MIN && !__builtin_mul_overflow(extent - 1, std::abs(stride), &step) &&
                      !__builtin_add_overflow(reach, step, &reach) && reach <= INT64_MAX / 16;
    require(fits, kWhere, "extents times strides of ", name, " must fit in int64, got a stride of ", stride);
  }
}

// A pointer may be NULL where there is nothing to read.
void check_pointer(const void* data, int64_t elements, int64_t bytes, const char* name) {
  require(data != nullptr || elements == 0, kWhere, name, " must not be NULL, got NULL");
  require(is_aligned(data, bytes), kWhere, name, " must be aligned to its element of ", bytes, " bytes, got ", data);
}

void check_arrays(const rf_linear_attention_args& x) {
  const int64_t queries = x.batch * x.queries * x.heads, keys = x.batch * x.keys * x.heads;
  const int64_t bytes = element_bytes(x.dtype);
  check_pointer(x.q, queries, bytes, "q");
  check_pointer(x.k, keys, bytes, "k");
  check_pointer(x.v, keys, bytes, "v");
  check_reach({{x.batch, x.q_stride_b}, {x.queries, x.q_stride_t}, {x.heads, x.q_stride_h}}, "q");
  check_reach({{x.batch, x.k_stride_b}, {x.keys, x.k_stride_t}, {x.key_heads, x.k_stride_h}}, "k");
  check_reach({{x.batch, x.v_stride_b}, {x.keys, x.v_stride_t}, {x.key_heads, x.v_stride_h}}, "v");
  check_reach({{x.batch, x.out_stride_b}, {x.queries, x.out_stride_t}, {x.heads, x.out_stride_h}}, "out");
  check_reach({{x.batch, x.key_mask_stride_b}, {x.keys, x.key_mask_stride_s}}, "key_mask");
  check_pointer(x.denominators, 0, sizeof(float), "denominators");
}

void check_rotation(const rf_linear_attention_args& x, const rf_attention_rotation& rotation, const char* name) {
  require((rotation.cos == nullptr) == (rotation.sin == nullptr), kWhere, name,
          " must have both cos and sin or neither, got ", rotation.cos == nullptr ? "sin" : "cos", " alone");
  if (rotation.cos == nullptr) return;
  require(x.layout == RF_ROPE_PAIRS || x.layout == RF_ROPE_HALVES, kWhere,
          "layout must be RF_ROPE_PAIRS or RF_ROPE_HALVES, got ", static_cast<int>(x.layout));
  require(rotation.batch == x.batch || rotation.batch == 1, kWhere, name, ".batch must be 1 or batch = ", x.batch,
          ", got ", rotation.batch);
  require(rotation.pairs >= 1 && rotation.pairs <= x.features / 2, kWhere, name, ".pairs must be in 1..",
          x.features / 2, ", got ", rotation.pairs);
  check_pointer(rotation.cos, 0, row_element_bytes(x.dtype), name);
  check_pointer(rotation.sin, 0, row_element_bytes(x.dtype), name);
}

void check_state(const rf_linear_attention_args& x) {
  if (x.state == nullptr) return;
  check_pointer(x.state, 0, sizeof(double), "state");
  require(x.direction == RF_LINEAR_CAUSAL, kWhere, "direction must be RF_LINEAR_CAUSAL with a state, got ",
          static_cast<int>(x.direction));
  require(x.queries == x.keys, kWhere, "queries must be as many as the keys, ", x.keys, ", with a state, got ",
          x.queries);
}

}  // namespace

void check_linear_attention(const rf_linear_attention_args* args) {
  require(args != nullptr, kWhere, "args must not be NULL, got NULL");
  require(args->struct_size >= sizeof *args, kWhere, "struct_size must be at least ", sizeof *args, ", got ",
          args->struct_size);
  check_choices(*args);
  check_extents(*args);
  check_arrays(*args);
  check_rotation(*args, args->rotation_q, "rotation_q");
  check_rotation(*args, args->rotation_k, "rotation_k");
  check_state(*args);
  const int64_t outputs = args->batch * args->queries * args->heads;
  check_pointer(args->out, outputs, element_bytes(args->dtype), "out");
}

void check_linear_attention_grads(const rf_linear_attention_args& x, const rf_linear_attention_grads* grads,
                                  bool in_loops) {
  require(grads != nullptr, kWhere, "grads must not be NULL, got NULL");
  require(grads->struct_size >= sizeof *grads, kWhere, "struct_size of grads must be at least ", sizeof *grads,
          ", got ", grads->struct_size);
  require(x.state == nullptr, kWhere, "state must be NULL in the backward, got one");
  const int64_t outputs = x.batch * x.queries * x.heads, bytes = element_bytes(x.dtype);
  check_pointer(grads->out, outputs, bytes, "grads.out");
  check_reach({{x.batch, grads->out_stride_b}, {x.queries, grads->out_stride_t}, {x.heads, grads->out_stride_h}},
              "grads.out");
  if (!in_loops) check_pointer(x.denominators, outputs, sizeof(float), "denominators");
  check_pointer(grads->q, 0, bytes, "grads.q");
  check_pointer(grads->k, 0, bytes, "grads.k");
  check_pointer(grads->v, 0, bytes, "grads.v");
}

}  // namespace rf::core
