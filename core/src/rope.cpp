// C interface of the rotary operator (rf/rope.h).
#include "rf/rope.h"

#include <cmath>
#include <memory>
#include <vector>

#include "error.h"
#include "ref/rope.h"
#include "rope_angle.h"
#include "rope_checks.h"

struct rf_rope {
  std::vector<rf::core::DoubleDouble> frequencies;
  double scale;
  double max_theta;
};

namespace rf::core {
namespace {

constexpr int64_t kMaxExactPosition = int64_t{1} << 53;

void check_positions(const rf_rope& rope, const rf_rope_args& args) {
  if (args.positions_i64 == nullptr && args.positions_f64 == nullptr) {
    check_position(static_cast<double>(args.position_offset), rope.max_theta);
    check_position(static_cast<double>(args.position_offset + args.tokens), rope.max_theta);
    return;
  }
  const int64_t rows = args.position_stride_b == 0 ? std::min<int64_t>(args.batch, 1) : args.batch;
  for (int64_t b = 0; b < rows; ++b) {
    for (int64_t t = 0; t < args.tokens; ++t) {
      const int64_t at = b * args.position_stride_b + t;
      if (args.positions_i64 != nullptr) {
        const int64_t position = args.positions_i64[at];
        require(position >= -kMaxExactPosition && position <= kMaxExactPosition, "rope",
                "positions must be within 2^53, got ", position);
      }
      check_position(args.positions_i64 ? static_cast<double>(args.positions_i64[at]) : args.positions_f64[at],
                     rope.max_theta);
    }
  }
}

void apply(rf_rope* rope, const rf_rope_args* args) {
  require(rope != nullptr, "rope", "rope must not be NULL, got NULL");
  const auto num_freqs = static_cast<int64_t>(rope->frequencies.size());
  check_args(args, num_freqs);
  check_positions(*rope, *args);
  std::vector<double> hi, lo;
  for (const DoubleDouble& theta : rope->frequencies) {
    hi.push_back(theta.hi);
    lo.push_back(theta.lo);
  }
  ref::rope(hi.data(), lo.data(), num_freqs, rope->scale, *args);
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_rope_create(const double* hi, const double* lo, int64_t num_freqs, double scale,
                                    int64_t max_cached_rows, rf_rope** out) {
  using namespace rf::core;
  return guarded("rope", [&] {
    require(out != nullptr, "rope", "out must not be NULL, got NULL");
    *out = nullptr;
    require(max_cached_rows >= 0, "rope", "max_cached_rows must be >= 0, got ", max_cached_rows);
    std::vector<DoubleDouble> frequencies = checked_frequencies(hi, lo, num_freqs);
    check_scale(scale);
    const double max_theta = max_magnitude(frequencies);
    *out = new rf_rope{std::move(frequencies), scale, max_theta};
  });
}

extern "C" void rf_rope_destroy(rf_rope* rope) {
  delete rope;
}

extern "C" rf_status rf_rope_apply(rf_rope* rope, const rf_rope_args* args) {
  return rf::core::guarded("rope", [&] { rf::core::apply(rope, args); });
}
