// C interface of frequencies and tables (rf/rope.h).
#include "common/error.h"
#include "rf/rope.h"
#include "rf/rope_scaling.h"
#include "rope/angle.h"
#include "rope/checks.h"
#include "rope/double_double.h"

namespace rf::core {
namespace {

template <class T>
void table(const double* hi, const double* lo, int64_t num_freqs, double scale, const double* positions, int64_t tokens,
           T* cos_rows, T* sin_rows) {
  const std::vector<DoubleDouble> theta = checked_frequencies(hi, lo, num_freqs);
  check_scale(scale);
  require(tokens >= 0, "rope", "tokens must be >= 0, got ", tokens);
  require(tokens == 0 || (positions != nullptr && cos_rows != nullptr && sin_rows != nullptr), "rope",
          "positions, cos_rows and sin_rows must not be NULL, got NULL");
  checked_product({tokens, num_freqs, static_cast<int64_t>(sizeof(T))}, "tokens * num_freqs", "rope");
  const double max_theta = max_magnitude(theta);
  for (int64_t t = 0; t < tokens; ++t) check_position(positions[t], max_theta);
#pragma omp parallel for schedule(static) if (tokens * num_freqs > 4096)
  for (int64_t t = 0; t < tokens; ++t) {
    fill_row(theta, scale, positions[t], cos_rows + t * num_freqs, sin_rows + t * num_freqs);
  }
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_rope_frequencies(double base, int64_t rotary_dim, double* hi, double* lo) {
  rf_rope_scaling unscaled = {};
  unscaled.struct_size = sizeof(unscaled);
  unscaled.type = RF_ROPE_SCALING_NONE;
  unscaled.base = base;
  return rf_rope_scaled_frequencies(&unscaled, rotary_dim, hi, lo);
}

extern "C" rf_status rf_rope_table_f32(const double* hi, const double* lo, int64_t num_freqs, double scale,
                                       const double* positions, int64_t tokens, float* cos_rows, float* sin_rows) {
  return rf::core::guarded("rope",
                           [&] { rf::core::table(hi, lo, num_freqs, scale, positions, tokens, cos_rows, sin_rows); });
}

extern "C" rf_status rf_rope_table_f64(const double* hi, const double* lo, int64_t num_freqs, double scale,
                                       const double* positions, int64_t tokens, double* cos_rows, double* sin_rows) {
  return rf::core::guarded("rope",
                           [&] { rf::core::table(hi, lo, num_freqs, scale, positions, tokens, cos_rows, sin_rows); });
}
