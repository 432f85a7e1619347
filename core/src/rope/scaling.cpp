// Frequencies under scalings, in double-double (rf/rope_scaling.h has the formulas). Powers of the base are computed in
// logarithms, so a base that grows with the sequence does not overflow.
#include "rf/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/arguments.h"
#include "common/error.h"
#include "rope/double_double.h"

namespace rf::core {
namespace {

constexpr int64_t kMaxRotaryDim = int64_t{1} << 20;
constexpr DoubleDouble kTwoPi = {6.283185307179586, 2.4492935982947064e-16};

DoubleDouble subtract(DoubleDouble a, DoubleDouble b) { return add(a, negate(b)); }

bool less(DoubleDouble a, DoubleDouble b) { return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo); }

DoubleDouble floor(DoubleDouble x) {
  const double whole = std::floor(x.hi);
  return whole == x.hi ? quick_two_sum(whole, std::floor(x.lo)) : DoubleDouble{whole, 0};
}

void check(const rf_rope_scaling& s, int64_t rotary_dim) {
  require(std::isfinite(s.base) && s.base > 0, "rope", "base must be finite and > 0, got ", s.base);
  require(rotary_dim >= 2 && rotary_dim <= kMaxRotaryDim && rotary_dim % 2 == 0, "rope",
          "rotary_dim must be even and in 2..", kMaxRotaryDim, ", got ", rotary_dim);
  require(s.type >= RF_ROPE_SCALING_NONE && s.type <= RF_ROPE_SCALING_PROPORTIONAL, "rope",
          "scaling type must be one of rf_rope_scaling_type, got ", static_cast<int>(s.type));
  if (s.type != RF_ROPE_SCALING_NONE && s.type != RF_ROPE_SCALING_LONGROPE) {
    require(std::isfinite(s.factor) && s.factor >= 1, "rope", "factor must be finite and >= 1, got ", s.factor);
  }
  if (s.type == RF_ROPE_SCALING_NTK || s.type == RF_ROPE_SCALING_DYNAMIC) {
    require(rotary_dim >= 4, "rope", "rotary_dim must be at least 4 for NTK scaling, got ", rotary_dim);
  }
  if (s.type == RF_ROPE_SCALING_DYNAMIC || s.type == RF_ROPE_SCALING_YARN || s.type == RF_ROPE_SCALING_LLAMA3) {
    require(s.trained_length >= 1, "rope", "trained_length must be >= 1, got ", s.trained_length);
  }
  if (s.type == RF_ROPE_SCALING_YARN) {
    require(s.base > 1, "rope", "base must be > 1 for YaRN, got ", s.base);
    require(std::isfinite(s.beta_fast) && s.beta_slow > 0 && s.beta_fast >= s.beta_slow, "rope",
            "beta_fast must be finite and >= beta_slow > 0, got ", s.beta_fast, " and ", s.beta_slow);
  }
  if (s.type == RF_ROPE_SCALING_LLAMA3) {
    require(std::isfinite(s.high_freq_factor) && s.low_freq_factor > 0 && s.high_freq_factor > s.low_freq_factor,
            "rope", "high_freq_factor must be finite and > low_freq_factor > 0, got ", s.high_freq_factor, " and ",
            s.low_freq_factor);
  }
  if (s.type == RF_ROPE_SCALING_LONGROPE) {
    require(s.divisors != nullptr, "rope", "divisors must not be NULL, got NULL");
    for (int64_t i = 0; i < rotary_dim / 2; ++i) {
      require(std::isfinite(s.divisors[i]) && s.divisors[i] > 0, "rope", "divisors must be finite and > 0, got ",
              s.divisors[i]);
    }
  }
  if (s.type == RF_ROPE_SCALING_PROPORTIONAL) {
    require(s.rotating_pairs >= 0 && s.rotating_pairs <= rotary_dim / 2, "rope", "rotating_pairs must be in 0..",
            rotary_dim / 2, ", got ", s.rotating_pairs);
  }
}

// ln base', which is ln base if the type does not change the base.
DoubleDouble log_base(const rf_rope_scaling& s, int64_t rotary_dim) {
  DoubleDouble growth = {1, 0};
  if (s.type == RF_ROPE_SCALING_NTK) growth = {s.factor, 0};
  if (s.type == RF_ROPE_SCALING_DYNAMIC && s.length > s.trained_length) {
    const double trained = static_cast<double>(s.trained_length), length = static_cast<double>(s.length);
    const DoubleDouble rest = multiply(add({s.factor, 0}, {-1, 0}), trained);
    growth = divide(subtract(two_product(s.factor, length), rest), trained);
  }
  const double dim = static_cast<double>(rotary_dim);
  const DoubleDouble unscaled = log(s.base);
  if (growth.hi == 1 && growth.lo == 0) return unscaled;
  return add(unscaled, divide(multiply(log(growth), dim), dim - 2));
}

// The ends of YaRN's linear ramp, in pairs.
struct Ramp {
  DoubleDouble low, high;
};

Ramp yarn_ramp(const rf_rope_scaling& s, int64_t rotary_dim) {
  const DoubleDouble twice_log_base = multiply(log(s.base), 2.0);
  const auto at = [&](double beta) {
    const DoubleDouble rotations = divide({static_cast<double>(s.trained_length), 0}, multiply(kTwoPi, beta));
    return divide(multiply(log(rotations), static_cast<double>(rotary_dim)), twice_log_base);
  };
  Ramp ramp{at(s.beta_fast), at(s.beta_slow)};
  if (s.truncate != 0) ramp = {floor(ramp.low), negate(floor(negate(ramp.high)))};
  const DoubleDouble first = {0, 0}, last = {static_cast<double>(rotary_dim - 1), 0};
  if (less(ramp.low, first)) ramp.low = first;
  if (less(last, ramp.high)) ramp.high = last;
  if (ramp.low.hi == ramp.high.hi && ramp.low.lo == ramp.high.lo) ramp.high = add(ramp.high, {0.001, 0});
  return ramp;
}

// theta ((1 - t) + t / factor).
DoubleDouble between(DoubleDouble theta, DoubleDouble t, double factor) {
  return multiply(theta, add(subtract({1, 0}, t), divide(t, factor)));
}

DoubleDouble yarn(DoubleDouble theta, double pair, const Ramp& ramp, double factor) {
  const DoubleDouble share = divide(subtract({pair, 0}, ramp.low), subtract(ramp.high, ramp.low));
  if (share.hi <= 0) return theta;
  return less(share, {1, 0}) ? between(theta, share, factor) : divide(theta, factor);
}

DoubleDouble llama3(DoubleDouble theta, const rf_rope_scaling& s) {
  const DoubleDouble rotations = divide(multiply(theta, static_cast<double>(s.trained_length)), kTwoPi);
  const DoubleDouble low = {s.low_freq_factor, 0}, high = {s.high_freq_factor, 0};
  if (less(high, rotations)) return theta;
  if (less(rotations, low)) return divide(theta, s.factor);
  return between(theta, divide(subtract(high, rotations), subtract(high, low)), s.factor);
}

void frequencies(const rf_rope_scaling* scaling, int64_t rotary_dim, double* hi, double* lo) {
  require(hi != nullptr && lo != nullptr, "rope", "hi and lo must not be NULL, got NULL");
  const rf_rope_scaling s = arguments("rope", scaling, "scaling");
  check(s, rotary_dim);
  const DoubleDouble log_scaled = log_base(s, rotary_dim);
  const Ramp ramp = s.type == RF_ROPE_SCALING_YARN ? yarn_ramp(s, rotary_dim) : Ramp{};
  for (int64_t i = 0; i < rotary_dim / 2; ++i) {
    // The division comes last, as the only step that rounds the exponent.
    DoubleDouble theta =
        exp(divide(multiply(log_scaled, static_cast<double>(-2 * i)), static_cast<double>(rotary_dim)));
    if (s.type == RF_ROPE_SCALING_LINEAR) theta = divide(theta, s.factor);
    if (s.type == RF_ROPE_SCALING_YARN) theta = yarn(theta, static_cast<double>(i), ramp, s.factor);
    if (s.type == RF_ROPE_SCALING_LONGROPE) theta = divide(theta, s.divisors[i]);
    if (s.type == RF_ROPE_SCALING_LLAMA3) theta = llama3(theta, s);
    if (s.type == RF_ROPE_SCALING_PROPORTIONAL) {
      theta = i < s.rotating_pairs ? divide(theta, s.factor) : DoubleDouble{};
    }
    hi[i] = theta.hi;
    lo[i] = theta.lo;
  }
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_rope_scaled_frequencies(const rf_rope_scaling* scaling, int64_t rotary_dim, double* hi,
                                                double* lo) {
  return rf::core::guarded("rope", [&] { rf::core::frequencies(scaling, rotary_dim, hi, lo); });
}
