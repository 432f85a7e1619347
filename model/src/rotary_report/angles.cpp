// Errors of angles (angles.h): compares rows of rf/model/rotary_rows.h with its exact rows.
#include "angles.h"

#include <algorithm>
#include <cmath>

#include "rf/io/half.h"

namespace rf {
namespace {

constexpr int64_t kCheckedPositions = 4096, kMinPositions = 16;
constexpr int64_t kCheckedAngles = int64_t{1} << 19;  // limit for all positions together, if heads are large
constexpr double kMaxError = 2;

// As torch casts an integer; infinity beyond the range.
double rounded_to_bfloat16(int64_t position) {
  return static_cast<double>(io::float_of_bf16(io::bf16_of_float(static_cast<float>(position))));
}
double rounded_to_float16(int64_t position) {
  return static_cast<double>(io::float_of_half(io::half_of_float(static_cast<float>(position))));
}

RotarySettings unscaled(const RopeSpec& spec, RopePrecision precision) {
  RotarySettings settings;
  settings.spec = spec;
  settings.spec.attention_factor = 1;
  settings.spec.precision = precision;
  return settings;
}

RotaryRows float32_rows(const RopeSpec& spec) {
  return RotaryRows(unscaled(spec, RopePrecision::kFloat32), [spec](int64_t length) {
    const std::vector<double> exact = frequencies(spec, length).hi;
    return std::vector<float>(exact.begin(), exact.end());
  });
}

struct Rows {
  std::vector<double> cos, sin;
};

Rows rows_at(const RotaryRows& rotary, const std::vector<int64_t>& positions, int64_t length) {
  const std::vector<int64_t> first(positions.size(), 0), end(positions.size(), length);
  Rows rows;
  rows.cos.resize(positions.size() * static_cast<size_t>(rotary.pairs()));
  rows.sin.resize(rows.cos.size());
  const RotaryTokens tokens = {.count = std::ssize(positions),
                               .ids = positions.data(),
                               .first = first.data(),
                               .end = end.data(),
                               .axes = nullptr};
  rotary.fill(RotarySide::kQuery, tokens, rows.cos.data(), rows.sin.data());
  return rows;
}

}  // namespace

AngleError angle_error(const RopeSpec& spec, AngleForm form, int64_t length) {
  const RotaryRows exact(unscaled(spec, RopePrecision::kExact));
  const bool is_float32 = form == AngleForm::kFloat32;
  const RotaryRows other = is_float32 ? float32_rows(spec) : exact;
  const int64_t pairs = exact.pairs();
  const int64_t checked = std::min(length, std::clamp(kCheckedAngles / pairs, kMinPositions, kCheckedPositions));
  AngleError worst{.error = -1};
  constexpr int64_t kChunk = 64;
  for (int64_t begin = length - checked; begin < length; begin += kChunk) {
    std::vector<int64_t> positions, rounded;
    for (int64_t p = begin; p < std::min(begin + kChunk, length); ++p) {
      const double there = is_float32                              ? static_cast<double>(p)
                           : form == AngleForm::kBfloat16Positions ? rounded_to_bfloat16(p)
                                                                   : rounded_to_float16(p);
      if (!std::isfinite(there)) return {.error = kMaxError, .position = p, .pair = 0};
      positions.push_back(p);
      rounded.push_back(static_cast<int64_t>(there));
    }
    const Rows truth = rows_at(exact, positions, length), found = rows_at(other, rounded, length);
    for (size_t i = 0; i < truth.cos.size(); ++i) {
      const double error = std::max(std::abs(truth.cos[i] - found.cos[i]), std::abs(truth.sin[i] - found.sin[i]));
      if (error <= worst.error) continue;
      const auto at = static_cast<int64_t>(i);
      worst = {.error = error, .position = begin + at / pairs, .pair = at % pairs};
    }
  }
  return worst;
}

}  // namespace rf
