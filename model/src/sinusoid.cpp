// Sinusoids of positions (sinusoid.h).
#include "rf/model/sinusoid.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "rf/io/error.h"
#include "rf/model/rotary_rows.h"
#include "rf/rope.h"

namespace rf {

namespace {

rf_status table(const std::vector<double>& hi, const std::vector<double>& lo, const std::vector<double>& positions,
                float* cos, float* sin) {
  return rf_rope_table_f32(hi.data(), lo.data(), std::ssize(hi), 1, positions.data(), std::ssize(positions), cos, sin);
}
rf_status table(const std::vector<double>& hi, const std::vector<double>& lo, const std::vector<double>& positions,
                double* cos, double* sin) {
  return rf_rope_table_f64(hi.data(), lo.data(), std::ssize(hi), 1, positions.data(), std::ssize(positions), cos, sin);
}

std::vector<double> as_doubles(const int64_t* positions, int64_t count) { return exact_positions(positions, count); }
std::vector<double> as_doubles(const double* positions, int64_t count) { return {positions, positions + count}; }

void require_computed(rf_status status) {
  if (status != RF_OK) fail("sinusoid", "sinusoids must be computable, got {}", rf_last_error());
}

template <class T>
void arrange(const T* cos, const T* sin, int64_t sines, int64_t width, SinusoidLayout layout, T* row) {
  switch (layout) {
    case SinusoidLayout::kInterleaved:
      for (int64_t j = 0; j < width; ++j) row[j] = j % 2 == 0 ? sin[j / 2] : cos[j / 2];
      return;
    case SinusoidLayout::kHalf: std::copy_n(cos, width - sines, std::copy_n(sin, sines, row)); return;
    case SinusoidLayout::kSineOnly: std::copy_n(sin, width, row);
  }
}

}  // namespace

SinusoidLayout read_sinusoid_layout(io::StrictObject& options) {
  return options.choice("layout", SinusoidLayout::kInterleaved,
                        {{"interleaved", SinusoidLayout::kInterleaved},
                         {"half", SinusoidLayout::kHalf},
                         {"sine-only", SinusoidLayout::kSineOnly}});
}

template <class T, class Position>
void sinusoid(const Position* positions, int64_t count, int64_t width, SinusoidLayout layout, T* rows) {
  if (count == 0) return;
  // 10000^(-j/width) for every j, which also serves odd widths: a rotation of 2 * width dimensions has these.
  std::vector<double> hi(static_cast<size_t>(width)), lo(hi.size());
  require_computed(rf_rope_frequencies(10000.0, 2 * width, hi.data(), lo.data()));
  if (layout != SinusoidLayout::kSineOnly) {
    const auto used = static_cast<size_t>((width + 1) / 2);
    for (size_t i = 0; i < used; ++i) {
      hi[i] = hi[2 * i];
      lo[i] = lo[2 * i];
    }
    hi.resize(used);
    lo.resize(used);
  }
  const std::vector<double> exact = as_doubles(positions, count);
  const int64_t sines = std::ssize(hi);
  std::vector<T> cos(static_cast<size_t>(count * sines)), sin(cos.size());
  require_computed(table(hi, lo, exact, cos.data(), sin.data()));
  for (int64_t t = 0; t < count; ++t) {
    arrange(cos.data() + t * sines, sin.data() + t * sines, sines, width, layout, rows + t * width);
  }
}

int64_t read_nezha_clip(io::StrictObject& options) {
  return options.integer("max_relative_position", 64, 0, (int64_t{1} << 23) - 1);
}

template <class T>
void nezha_rows(int64_t clip, int64_t head_dim, T* rows) {
  std::vector<int64_t> index(static_cast<size_t>(2 * clip + 1));
  std::iota(index.rbegin(), index.rend(), 0);
  sinusoid(index.data(), std::ssize(index), head_dim, SinusoidLayout::kInterleaved, rows);
}

template void sinusoid(const int64_t*, int64_t, int64_t, SinusoidLayout, float*);
template void sinusoid(const int64_t*, int64_t, int64_t, SinusoidLayout, double*);
template void sinusoid(const double*, int64_t, int64_t, SinusoidLayout, float*);
template void sinusoid(const double*, int64_t, int64_t, SinusoidLayout, double*);
template void nezha_rows(int64_t, int64_t, float*);
template void nezha_rows(int64_t, int64_t, double*);

}  // namespace rf
