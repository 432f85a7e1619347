// C interface of frequencies and tables (rf/rope.h).
#include <cmath>

#include "double_double.h"
#include "error.h"
#include "rf/rope.h"
#include "rope_angle.h"
#include "rope_checks.h"

namespace rf::core {
namespace {

constexpr int64_t kMaxRotaryDim = int64_t{1} << 20;

void frequencies(double base, int64_t rotary_dim, double* hi, double* lo) {
  require(hi != nullptr && lo != nullptr, "rope", "hi and lo must not be NULL, got NULL");
  require(std::isfinite(base) && base > 0, "rope", "base must be finite and > 0, got ", base);
  require(rotary_dim >= 2 && rotary_dim <= kMaxRotaryDim && rotary_dim % 2 == 0, "rope",
          "rotary_dim must be even and in 2..", kMaxRotaryDim, ", got ", rotary_dim);
  const DoubleDouble log_base = log(base);
  for (int64_t i = 0; i < rotary_dim / 2; ++i) {
    // -2i/R is exact but for the division, which is done last.
    const DoubleDouble power = divide(multiply(log_base, static_cast<double>(-2 * i)), static_cast<double>(rotary_dim));
    const DoubleDouble theta = exp(power);
    hi[i] = theta.hi;
    lo[i] = theta.lo;
  }
}

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
  return rf::core::guarded("rope", [&] { rf::core::frequencies(base, rotary_dim, hi, lo); });
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
