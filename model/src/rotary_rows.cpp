// Cosines and sines of positions: rows of rotations, and sinusoids (rotary_rows.h).
#include "rf/model/rotary_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "rf/io/error.h"
#include "rf/rope.h"

namespace rf {

namespace {

constexpr int64_t kMaxExactPosition = int64_t{1} << 53;
constexpr int64_t kMropeAxes = 3;

constexpr double kGamma = 0.4;  // of xpos
// The limit of a product q . k before xPos (dy . v in the backward), so that it is finite after xPos. It gets half of
// float16's exponents, and more than enough in other dtypes.
constexpr double kProductRoom = 0x1p20, kHalfProductRoom = 0x1p8;

struct Range {
  const char* name;
  double lowest, highest;  // range of numbers with full precision
  double room;
};

Range range_of(io::DType dtype) {
  if (dtype == io::DType::kF64)
    return {"float64", std::numeric_limits<double>::min(), std::numeric_limits<double>::max(), kProductRoom};
  if (dtype == io::DType::kF16) return {"float16", 0x1p-14, 65504.0, kHalfProductRoom};
  const double lowest = std::numeric_limits<float>::min();
  if (dtype == io::DType::kBF16) return {"bfloat16", lowest, 0x1.FEp127, kProductRoom};
  return {"float32", lowest, std::numeric_limits<float>::max(), kProductRoom};
}

void check_core(rf_status status) {
  if (status == RF_OUT_OF_MEMORY) throw std::bad_alloc();
  if (status != RF_OK) fail("rope", "rows must be computable, got {}", rf_last_error());
}

void core_table(const double* hi, const double* lo, int64_t pairs, double scale, const double* positions,
                int64_t tokens, float* cos, float* sin) {
  check_core(rf_rope_table_f32(hi, lo, pairs, scale, positions, tokens, cos, sin));
}
void core_table(const double* hi, const double* lo, int64_t pairs, double scale, const double* positions,
                int64_t tokens, double* cos, double* sin) {
  check_core(rf_rope_table_f64(hi, lo, pairs, scale, positions, tokens, cos, sin));
}

// Cosine and sine of angles that are exact in float32: of positions at frequency 1.
void rounded_cos_sin(const float* angles, int64_t count, float* cos, float* sin) {
  const std::vector<double> exact(angles, angles + count);
  constexpr double kOne = 1;
  core_table(&kOne, nullptr, 1, 1, exact.data(), count, cos, sin);
}

int64_t floor_divided(int64_t a, int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);  // b > 0
}

// Coordinates of a flat index in a grid, the last axis fastest; the first axis takes the rest.
int64_t coordinate(int64_t position, const std::vector<int64_t>& shape, size_t axis) {
  for (size_t inner = shape.size() - 1; inner > axis; --inner) position = floor_divided(position, shape[inner]);
  return axis == 0 ? position : position - floor_divided(position, shape[axis]) * shape[axis];
}

std::vector<double> as_doubles(const int64_t* positions, int64_t count) { return exact_positions(positions, count); }
std::vector<double> as_doubles(const double* positions, int64_t count) { return {positions, positions + count}; }

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

std::vector<double> exact_positions(const int64_t* positions, int64_t count) {
  std::vector<double> exact(static_cast<size_t>(count));
  for (int64_t t = 0; t < count; ++t) {
    if (positions[t] < -kMaxExactPosition || positions[t] > kMaxExactPosition)
      fail("positions", "positions must be within 2^53, got {}", positions[t]);
    exact[t] = static_cast<double>(positions[t]);
  }
  return exact;
}

RotaryRows::RotaryRows(RotarySettings settings, GivenFrequencies given, Float32CosSin cos_sin)
    : settings_(std::move(settings)), given_(std::move(given)), cos_sin_(std::move(cos_sin)), initial_(of_length(0)) {
  if (!cos_sin_) cos_sin_ = rounded_cos_sin;
}

int64_t RotaryRows::pairs() const {
  return settings_.spec.rotary_dim / 2 * (settings_.form == RotaryForm::kAxial ? 2 : 1);
}

bool RotaryRows::changes_with_length() const {
  return settings_.form == RotaryForm::kXpos || settings_.log_n == LogN::kLength ||
         settings_.spec.changes_with_length();
}

bool RotaryRows::is_plain() const {
  return settings_.form == RotaryForm::kRope && settings_.log_n == LogN::kNone && !given_ && !cos_sin_ &&
         !settings_.spec.changes_with_length();
}

bool RotaryRows::sides_differ() const { return settings_.form == RotaryForm::kXpos || settings_.log_n != LogN::kNone; }

bool RotaryRows::depends_on_sequence(int64_t end) const {
  if (settings_.form == RotaryForm::kXpos || settings_.log_n == LogN::kLength) return true;
  return settings_.spec.changes_with_length() && end > settings_.spec.trained_length;
}

// The smallest zeta, of pair 0, leaves the range first: upwards in products of a query and a later key, downwards in
// the vectors, over half of the length.
void RotaryRows::check_span(int64_t positions, io::DType dtype) const {
  if (settings_.form != RotaryForm::kXpos) return;
  const Range range = range_of(dtype);
  const double factor = settings_.spec.attention_factor, decay = std::log((1 + kGamma) / kGamma);
  const double product = std::log(range.highest / range.room) - 2 * std::log(factor);
  const double vector = 2 * std::log(factor / range.lowest);
  const double steps = std::clamp(std::min(product, vector) / decay * settings_.scale_base, 0.0, 0x1p53);
  const int64_t longest = 1 + static_cast<int64_t>(steps);
  if (positions > longest) {
    fail("xpos", "a sequence must span at most {} positions for products of {} to stay in range, got {}", longest,
         range.name, positions);
  }
}

void RotaryRows::check_on_grid(int64_t position) const {
  if (settings_.form != RotaryForm::kAxialNd) return;
  const std::vector<int64_t>& shape = settings_.grid_shape;
  if (shape.empty())
    fail("axial-nd", "grid_shape must be given where positions have no axes, got none for position {}", position);
  if (shape[0] < 0) return;
  const int64_t tokens = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  if (position < 0 || position >= tokens) {
    fail("axial-nd", "positions must be in 0..{}, those of the grid_shape [{}], got {}", tokens - 1,
         fmt::join(shape, ", "), position);
  }
}

// For axial-nd: the values of each axis, concatenated.
RopeFrequencies RotaryRows::of_length(int64_t sequence_length) const {
  if (settings_.form == RotaryForm::kAxialNd) {
    RopeFrequencies all;
    for (const int64_t dims : settings_.axes_dims) {
      RopeSpec axis = settings_.spec;
      axis.head_dim = axis.rotary_dim = dims;
      const RopeFrequencies of_axis = frequencies(axis, sequence_length);
      all.hi.insert(all.hi.end(), of_axis.hi.begin(), of_axis.hi.end());
      all.lo.insert(all.lo.end(), of_axis.lo.begin(), of_axis.lo.end());
    }
    return all;
  }
  if (!given_) return frequencies(settings_.spec, sequence_length);
  const std::vector<float> given = given_(sequence_length);
  return {.hi = std::vector<double>(given.begin(), given.end()), .lo = {}};
}

template <class T>
void RotaryRows::table(const RopeFrequencies& theta, Section section, const double* positions, int64_t count, T* cos,
                       T* sin) const {
  const double* hi = theta.hi.data() + section.begin;
  const double scale = settings_.spec.attention_factor;
  if (settings_.spec.precision == RopePrecision::kExact) {
    const double* lo = theta.lo.empty() ? nullptr : theta.lo.data() + section.begin;
    return core_table(hi, lo, section.count, scale, positions, count, cos, sin);
  }
  const int64_t elements = count * section.count;
  std::vector<float> angles(static_cast<size_t>(elements)), cosines(angles.size()), sines(angles.size());
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t i = 0; i < section.count; ++i)
      angles[t * section.count + i] = static_cast<float>(positions[t]) * static_cast<float>(hi[i]);
  }
  cos_sin_(angles.data(), elements, cosines.data(), sines.data());
  const auto factor = static_cast<float>(scale);
  for (int64_t i = 0; i < elements; ++i) {
    cos[i] = cosines[i] * factor;
    sin[i] = sines[i] * factor;
  }
}

// Rows [count, section.count] at these positions, each with the frequencies for the length of its sequence.
template <class T>
void RotaryRows::fill_axis(const RotaryTokens& tokens, Section section, const double* positions, T* cos, T* sin) const {
  const RopeSpec& spec = settings_.spec;
  if (!spec.changes_with_length()) return table(initial_, section, positions, tokens.count, cos, sin);
  // Lengths with equal frequencies are merged: all lengths within the training length, and for longrope all lengths
  // beyond it.
  const auto length_of = [&](int64_t t) {
    const int64_t length = tokens.end == nullptr ? spec.trained_length : std::max(tokens.end[t], spec.trained_length);
    return spec.type == RopeType::kLongrope ? std::min(length, spec.trained_length + 1) : length;
  };
  std::map<int64_t, RopeFrequencies> by_length;
  for (int64_t begin = 0, end = 0; begin < tokens.count; begin = end) {
    const int64_t length = length_of(begin);
    while (end < tokens.count && length_of(end) == length) ++end;
    const bool is_initial = length == spec.trained_length;
    if (!is_initial && !by_length.contains(length)) by_length.emplace(length, of_length(length));
    const int64_t first = begin * section.count;
    table(is_initial ? initial_ : by_length.at(length), section, positions + begin, end - begin, cos + first,
          sin + first);
  }
}

template <class T>
void RotaryRows::fill_xpos(RotarySide side, const RotaryTokens& tokens, T* cos, T* sin) const {
  const int64_t dim = settings_.spec.rotary_dim, count = pairs();
  std::vector<double> zeta(static_cast<size_t>(count)), cosines(static_cast<size_t>(tokens.count * count)),
      sines(cosines.size());
  for (int64_t i = 0; i < count; ++i)
    zeta[i] = (static_cast<double>(2 * i) / static_cast<double>(dim) + kGamma) / (1 + kGamma);
  const std::vector<double> positions = exact_positions(tokens.ids, tokens.count);
  fill_axis(tokens, {0, count}, positions.data(), cosines.data(), sines.data());
  const double half_step = (side == RotarySide::kQuery ? 1.0 : -1.0) / 2 / settings_.scale_base;
  std::map<int64_t, std::vector<double>> magnitudes;  // by twice the distance from the middle, which many tokens share
  for (int64_t t = 0; t < tokens.count; ++t) {
    const int64_t half_steps = 2 * tokens.ids[t] - tokens.first[t] - tokens.end[t] + 1;
    std::vector<double>& magnitude = magnitudes[half_steps];
    if (magnitude.empty()) {
      for (int64_t i = 0; i < count; ++i)
        magnitude.push_back(std::pow(zeta[i], static_cast<double>(half_steps) * half_step));
    }
    for (int64_t i = 0; i < count; ++i) {
      cos[t * count + i] = static_cast<T>(cosines[t * count + i] * magnitude[i]);
      sin[t * count + i] = static_cast<T>(sines[t * count + i] * magnitude[i]);
    }
  }
}

template <class T>
void RotaryRows::multiply_by_log_n(const RotaryTokens& tokens, T* cos, T* sin) const {
  const double log_trained = std::log(static_cast<double>(settings_.spec.trained_length));
  const bool by_length = settings_.log_n == LogN::kLength;
  for (int64_t t = 0; t < tokens.count; ++t) {
    const int64_t seen = by_length ? tokens.end[t] - tokens.first[t] : std::max<int64_t>(tokens.ids[t], 0) + 1;
    const double ratio = std::log(static_cast<double>(seen)) / log_trained,
                 factor = by_length ? ratio : std::max(ratio, 1.0);
    for (T* row : {cos + t * pairs(), sin + t * pairs()})
      std::transform(row, row + pairs(), row, [=](T x) { return static_cast<T>(static_cast<double>(x) * factor); });
  }
}

template <class T>
void RotaryRows::fill(RotarySide side, const RotaryTokens& tokens, T* cos, T* sin) const {
  if (tokens.count == 0) return;
  fill_rows(side, tokens, cos, sin);
  if (side == RotarySide::kQuery && settings_.log_n != LogN::kNone) multiply_by_log_n(tokens, cos, sin);
}

template <class T>
void RotaryRows::fill_rows(RotarySide side, const RotaryTokens& tokens, T* cos, T* sin) const {
  if (settings_.form == RotaryForm::kXpos) return fill_xpos(side, tokens, cos, sin);
  const bool axial = settings_.form == RotaryForm::kAxial, axial_nd = settings_.form == RotaryForm::kAxialNd;
  if (!axial && !axial_nd && tokens.axes == nullptr) {
    const std::vector<double> positions = exact_positions(tokens.ids, tokens.count);
    return fill_axis(tokens, {0, pairs()}, positions.data(), cos, sin);
  }
  // The pairs of a row are ordered by axis.
  std::vector<int64_t> ids(static_cast<size_t>(tokens.count));
  std::vector<T> cosines, sines;
  int64_t first = 0;
  const auto fill_part = [&](Section section) {
    const std::vector<double> positions = exact_positions(ids.data(), tokens.count);
    cosines.resize(static_cast<size_t>(tokens.count * section.count));
    sines.resize(cosines.size());
    fill_axis(tokens, section, positions.data(), cosines.data(), sines.data());
    for (int64_t t = 0; t < tokens.count; ++t) {
      std::copy_n(cosines.data() + t * section.count, section.count, cos + t * pairs() + first);
      std::copy_n(sines.data() + t * section.count, section.count, sin + t * pairs() + first);
    }
    first += section.count;
  };
  if (axial) {
    const int64_t width = settings_.grid_width;
    std::transform(tokens.ids, tokens.ids + tokens.count, ids.begin(),
                   [&](int64_t p) { return floor_divided(p, width); });
    fill_part({0, pairs() / 2});
    std::transform(tokens.ids, tokens.ids + tokens.count, ids.begin(),
                   [&](int64_t p) { return p - floor_divided(p, width) * width; });
    return fill_part({0, pairs() / 2});
  }
  if (axial_nd && tokens.axes == nullptr) check_on_grid(0);  // that a grid was given
  const int64_t axes = axial_nd ? std::ssize(settings_.axes_dims) : kMropeAxes;
  for (int64_t axis = 0; axis < axes; ++axis) {
    const auto of_axis = static_cast<size_t>(axis);
    const int64_t count = axial_nd ? settings_.axes_dims[of_axis] / 2 : settings_.spec.mrope_section[of_axis];
    if (count == 0) continue;
    for (int64_t t = 0; t < tokens.count; ++t) {
      ids[t] = tokens.axes == nullptr ? coordinate(tokens.ids[t], settings_.grid_shape, of_axis)
                                      : tokens.axes[t * axes + axis];
    }
    fill_part({first, count});
  }
}

template void RotaryRows::fill(RotarySide, const RotaryTokens&, float*, float*) const;
template void RotaryRows::fill(RotarySide, const RotaryTokens&, double*, double*) const;

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
  check_core(rf_rope_frequencies(10000.0, 2 * width, hi.data(), lo.data()));
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
  core_table(hi.data(), lo.data(), sines, 1, exact.data(), count, cos.data(), sin.data());
  for (int64_t t = 0; t < count; ++t)
    arrange(cos.data() + t * sines, sin.data() + t * sines, sines, width, layout, rows + t * width);
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
