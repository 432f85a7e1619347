// Rotary embedding in float64 loops (see the header).
#include "common/reference.h"

#include <cmath>

#include "convert.h"

namespace rf::ref {
namespace {

struct Rotation {
  double cos;
  double sin;
};

// The rotation by position * (hi + lo): with a = the rounded product and b = the rounding error, cos(a + b) = cos a cos
// b - sin a sin b and sin(a + b) = sin a cos b + cos a sin b, all by libm.
Rotation rotation(double position, double hi, double lo) {
  const double a = position * hi;
  const double b = std::fma(position, hi, -a) + position * lo;
  return {std::cos(a) * std::cos(b) - std::sin(a) * std::sin(b), std::sin(a) * std::cos(b) + std::cos(a) * std::sin(b)};
}

double position_of(const rf_rope_args& args, int64_t b, int64_t t) {
  if (args.positions_i64 != nullptr) return static_cast<double>(args.positions_i64[b * args.position_stride_b + t]);
  if (args.positions_f64 != nullptr) return args.positions_f64[b * args.position_stride_b + t];
  return static_cast<double>(args.position_offset + t);
}

// The 2 x 2 matrix of one pair: [[cos, -sin], [sin, cos]] times scale, its transpose or its inverse.
Rotation directed(Rotation r, double scale, rf_rope_direction direction) {
  switch (direction) {
    case RF_ROPE_FORWARD: return {r.cos * scale, r.sin * scale};
    case RF_ROPE_TRANSPOSE: return {r.cos * scale, -r.sin * scale};
    case RF_ROPE_INVERSE: return {r.cos / scale, -r.sin / scale};
  }
  return r;
}

// Rotates by row(b, t, i), which is already scaled and directed. Args: rf_rope_args or rf_rope_rows_args.
template <class Args, class RowAt>
void rotate_by(const Args& args, int64_t num_freqs, const RowAt& row) {
  for (int64_t b = 0; b < args.batch; ++b) {
    for (int64_t t = 0; t < args.tokens; ++t) {
      const int64_t x_token = b * args.x_stride_b + t * args.x_stride_t;
      const int64_t y_token = b * args.y_stride_b + t * args.y_stride_t;
      for (int64_t i = 0; i < num_freqs; ++i) {
        const Rotation r = row(b, t, i);
        const int64_t first = args.layout == RF_ROPE_PAIRS ? 2 * i : i;
        const int64_t second = args.layout == RF_ROPE_PAIRS ? 2 * i + 1 : i + num_freqs;
        for (int64_t h = 0; h < args.heads; ++h) {
          const int64_t x_row = x_token + h * args.x_stride_h, y_row = y_token + h * args.y_stride_h;
          const double x_a = load(args.dtype, args.x, x_row + first);
          const double x_b = load(args.dtype, args.x, x_row + second);
          store(args.dtype, args.y, y_row + first, x_a * r.cos - x_b * r.sin);
          store(args.dtype, args.y, y_row + second, x_a * r.sin + x_b * r.cos);
        }
      }
      if (args.x == args.y) continue;
      for (int64_t h = 0; h < args.heads; ++h) {
        const int64_t x_row = x_token + h * args.x_stride_h, y_row = y_token + h * args.y_stride_h;
        for (int64_t d = 2 * num_freqs; d < args.head_dim; ++d) {
          store(args.dtype, args.y, y_row + d, load(args.dtype, args.x, x_row + d));
        }
      }
    }
  }
}

}  // namespace

void rope(const double* hi, const double* lo, int64_t num_freqs, double scale, const rf_rope_args& args) {
  rotate_by(args, num_freqs, [&](int64_t b, int64_t t, int64_t i) {
    return directed(rotation(position_of(args, b, t), hi[i], lo[i]), scale, args.direction);
  });
}

void rotate(const rf_rope_rows_args& args) {
  const rf_dtype row_dtype = args.dtype == RF_F64 ? RF_F64 : RF_F32;
  rotate_by(args, args.num_freqs, [&](int64_t b, int64_t t, int64_t i) {
    const int64_t at = b * args.row_stride_b + t * args.row_stride_t + i;
    return directed({load(row_dtype, args.cos, at), load(row_dtype, args.sin, at)}, 1, args.direction);
  });
}

}  // namespace rf::ref
