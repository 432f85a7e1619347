// Argument rules of the rotary functions (see the header).
#include "rope/checks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/arguments.h"
#include "common/element.h"
#include "rope/angle.h"

namespace rf::core {
namespace {

constexpr int64_t kMaxFrequencies = int64_t{1} << 19;
constexpr double kMaxScale = 0x1p100;
constexpr int64_t kMaxExactPosition = int64_t{1} << 53;

void check_shape(const RopeData& data) {
  check_dtype(data.where, data.dtype);
  require(data.layout == RF_ROPE_PAIRS || data.layout == RF_ROPE_HALVES, data.where,
          "layout must be RF_ROPE_PAIRS or RF_ROPE_HALVES, got ", static_cast<int>(data.layout));
  for (const auto& [extent, name] : {std::pair{data.batch, "batch"}, {data.tokens, "tokens"}, {data.heads, "heads"}}) {
    require(extent >= 0, data.where, name, " must be >= 0, got ", extent);
  }
  require(data.head_dim >= 2 * data.num_freqs, data.where, "head_dim must be >= rotary_dim = ", 2 * data.num_freqs,
          ", got ", data.head_dim);
}

void check_memory(const RopeData& data) {
  require(data.x != nullptr && data.y != nullptr, data.where, "x and y must not be NULL, got NULL");
  const int64_t bytes = element_bytes(data.dtype);
  require(is_aligned(data.x, bytes) && is_aligned(data.y, bytes), data.where,
          "x and y must be aligned to their element of ", bytes, " bytes, got ", data.x, " and ", data.y);
  const auto check_view = [&](const char* name, int64_t stride_b, int64_t stride_t, int64_t stride_h) {
    check_reach(data.where,
                {{data.batch, stride_b}, {data.tokens, stride_t}, {data.heads, stride_h}, {data.head_dim, 1}}, name);
  };
  check_view("x", data.x_stride_b, data.x_stride_t, data.x_stride_h);
  check_view("y", data.y_stride_b, data.y_stride_t, data.y_stride_h);
  require(data.x != data.y || (data.x_stride_b == data.y_stride_b && data.x_stride_t == data.y_stride_t &&
                               data.x_stride_h == data.y_stride_h),
          data.where, "strides of x and y must be equal in place, got different ones");
}

void check_position_range(const rf_rope_args& args) {
  if (args.positions_i64 == nullptr && args.positions_f64 == nullptr) {
    int64_t last = 0;
    require(!__builtin_add_overflow(args.position_offset, args.tokens, &last) && last <= kMaxExactPosition &&
                args.position_offset >= -kMaxExactPosition,
            "rope", "positions must be within 2^53, got offset ", args.position_offset);
    return;
  }
  int64_t reach = 0;
  require(args.position_stride_b >= 0 && !__builtin_mul_overflow(args.batch, args.position_stride_b, &reach), "rope",
          "position_stride_b must be >= 0 and fit the batch, got ", args.position_stride_b);
}

}  // namespace

std::vector<DoubleDouble> checked_frequencies(const double* hi, const double* lo, int64_t num_freqs) {
  require(hi != nullptr, "rope", "hi must not be NULL, got NULL");
  require(num_freqs >= 1 && num_freqs <= kMaxFrequencies, "rope", "num_freqs must be in 1..", kMaxFrequencies, ", got ",
          num_freqs);
  std::vector<DoubleDouble> frequencies(static_cast<size_t>(num_freqs));
  for (int64_t i = 0; i < num_freqs; ++i) {
    const double low = lo == nullptr ? 0 : lo[i];
    require(std::isfinite(hi[i]) && std::isfinite(low), "rope", "frequencies must be finite, got ", hi[i], " + ", low,
            " at index ", i);
    require(std::abs(low) <= std::abs(hi[i]), "rope", "lo must not exceed hi in magnitude, got ", low, " at index ", i);
    frequencies[static_cast<size_t>(i)] = {hi[i], low};
  }
  return frequencies;
}

double max_magnitude(const std::vector<DoubleDouble>& frequencies) {
  double largest = 0;
  for (const DoubleDouble& theta : frequencies) largest = std::max(largest, std::abs(theta.hi));
  return largest;
}

void check_scale(double scale) {
  require(std::abs(scale) >= 1 / kMaxScale && std::abs(scale) <= kMaxScale, "rope",
          "scale must be finite, not 0, and within 2^-100..2^100 in magnitude, got ", scale);
}

void check_position(double position, double max_theta) {
  require(std::isfinite(position), "rope", "positions must be finite, got ", position);
  require(std::abs(position) * max_theta <= kMaxAngle, "rope",
          "position times the largest frequency must be within 2^60, got ", position, " * ", max_theta);
}

void check_given_position(const rf_rope_args& args, int64_t b, int64_t t, double max_theta) {
  const int64_t at = b * args.position_stride_b + t;
  if (args.positions_i64 == nullptr) return check_position(args.positions_f64[at], max_theta);
  const int64_t position = args.positions_i64[at];
  require(position >= -kMaxExactPosition && position <= kMaxExactPosition, "rope",
          "positions must be within 2^53, got ", position);
  check_position(static_cast<double>(position), max_theta);
}

int64_t checked_product(std::initializer_list<int64_t> extents, const char* name, const char* where) {
  int64_t product = 1;
  for (const int64_t extent : extents) {
    require(!__builtin_mul_overflow(product, extent, &product), where, name, " must fit in int64, got extent ", extent);
  }
  return product;
}

void check_args(const rf_rope_args& args, int64_t num_freqs) {
  require(args.direction == RF_ROPE_FORWARD || args.direction == RF_ROPE_TRANSPOSE || args.direction == RF_ROPE_INVERSE,
          "rope", "direction must be RF_ROPE_FORWARD, RF_ROPE_TRANSPOSE or RF_ROPE_INVERSE, got ",
          static_cast<int>(args.direction));
  const RopeData data = data_of("rope", args, num_freqs);
  check_shape(data);
  check_position_range(args);
  if (!data.is_empty()) check_memory(data);
}

void check_rows_args(const rf_rope_rows_args& args) {
  constexpr const char* kWhere = "rotate";
  require(args.direction == RF_ROPE_FORWARD || args.direction == RF_ROPE_TRANSPOSE, kWhere,
          "direction must be RF_ROPE_FORWARD or RF_ROPE_TRANSPOSE, got ", static_cast<int>(args.direction));
  require(args.num_freqs >= 1 && args.num_freqs <= kMaxFrequencies, kWhere, "num_freqs must be in 1..", kMaxFrequencies,
          ", got ", args.num_freqs);
  const RopeData data = data_of(kWhere, args, args.num_freqs);
  check_shape(data);
  require(args.row_stride_b >= 0 && args.row_stride_t >= 0, kWhere, "row strides must be >= 0, got ", args.row_stride_b,
          " and ", args.row_stride_t);
  if (data.is_empty()) return;
  check_memory(data);
  require(args.cos != nullptr && args.sin != nullptr, kWhere, "cos and sin must not be NULL, got NULL");
  const int64_t bytes = row_element_bytes(args.dtype);
  require(is_aligned(args.cos, bytes) && is_aligned(args.sin, bytes), kWhere,
          "cos and sin must be aligned to their element of ", bytes, " bytes, got ", args.cos, " and ", args.sin);
  checked_product({args.batch, args.row_stride_b, bytes}, "batch * row_stride_b", kWhere);
  checked_product({args.tokens, args.row_stride_t, bytes}, "tokens * row_stride_t", kWhere);
}

}  // namespace rf::core
