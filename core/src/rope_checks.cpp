// Argument rules of the rotary functions (see the header).
#include "rope_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "element.h"
#include "error.h"
#include "rope_angle.h"

namespace rf::core {
namespace {

constexpr int64_t kMaxFrequencies = int64_t{1} << 19;
constexpr double kMaxScale = 0x1p100;
constexpr int64_t kMaxExactPosition = int64_t{1} << 53;

// The offset in bytes of the last element of a strided view must fit in int64.
void check_reach(const rf_rope_args& args, const char* name, int64_t stride_b, int64_t stride_t, int64_t stride_h) {
  int64_t reach = args.head_dim;
  for (const auto& [extent, stride] :
       {std::pair{args.batch, stride_b}, {args.tokens, stride_t}, {args.heads, stride_h}}) {
    int64_t step = 0;
    const bool fits = stride != INT64_MIN && !__builtin_mul_overflow(extent - 1, std::abs(stride), &step) &&
                      !__builtin_add_overflow(reach, step, &reach);
    require(fits, "rope", "extents times strides of ", name, " must fit in int64, got stride ", stride, " for extent ",
            extent);
  }
  int64_t bytes = 0;
  require(!__builtin_mul_overflow(reach, element_bytes(args.dtype), &bytes), "rope", "extents times strides of ", name,
          " must fit in int64, got ", reach, " elements");
}

void check_enums(const rf_rope_args& args) {
  require(element_bytes(args.dtype) != 0, "rope", "dtype must be RF_F32, RF_F64, RF_BF16 or RF_F16, got ",
          static_cast<int>(args.dtype));
  require(args.layout == RF_ROPE_PAIRS || args.layout == RF_ROPE_HALVES, "rope",
          "layout must be RF_ROPE_PAIRS or RF_ROPE_HALVES, got ", static_cast<int>(args.layout));
  require(args.direction == RF_ROPE_FORWARD || args.direction == RF_ROPE_TRANSPOSE || args.direction == RF_ROPE_INVERSE,
          "rope", "direction must be RF_ROPE_FORWARD, RF_ROPE_TRANSPOSE or RF_ROPE_INVERSE, got ",
          static_cast<int>(args.direction));
}

void check_extents(const rf_rope_args& args, int64_t num_freqs) {
  for (const auto& [extent, name] : {std::pair{args.batch, "batch"}, {args.tokens, "tokens"}, {args.heads, "heads"}}) {
    require(extent >= 0, "rope", name, " must be >= 0, got ", extent);
  }
  require(args.head_dim >= 2 * num_freqs, "rope", "head_dim must be >= rotary_dim = ", 2 * num_freqs, ", got ",
          args.head_dim);
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

int64_t checked_product(std::initializer_list<int64_t> extents, const char* name) {
  int64_t product = 1;
  for (const int64_t extent : extents) {
    require(!__builtin_mul_overflow(product, extent, &product), "rope", name, " must fit in int64, got extent ",
            extent);
  }
  return product;
}

void check_args(const rf_rope_args* args, int64_t num_freqs) {
  require(args != nullptr, "rope", "args must not be NULL, got NULL");
  require(args->struct_size >= sizeof(rf_rope_args), "rope", "struct_size must be at least ", sizeof(rf_rope_args),
          ", got ", args->struct_size);
  check_enums(*args);
  check_extents(*args, num_freqs);
  check_position_range(*args);
  if (args->batch == 0 || args->tokens == 0 || args->heads == 0) return;
  require(args->x != nullptr && args->y != nullptr, "rope", "x and y must not be NULL, got NULL");
  const int64_t bytes = element_bytes(args->dtype);
  require(is_aligned(args->x, bytes) && is_aligned(args->y, bytes), "rope",
          "x and y must be aligned to their element of ", bytes, " bytes, got ", args->x, " and ", args->y);
  check_reach(*args, "x", args->x_stride_b, args->x_stride_t, args->x_stride_h);
  check_reach(*args, "y", args->y_stride_b, args->y_stride_t, args->y_stride_h);
  require(args->x != args->y || (args->x_stride_b == args->y_stride_b && args->x_stride_t == args->y_stride_t &&
                                 args->x_stride_h == args->y_stride_h),
          "rope", "strides of x and y must be equal in place, got different ones");
}

}  // namespace rf::core
