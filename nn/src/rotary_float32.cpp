// Computes frequencies in float32 as transformers does (modeling_rope_utils, and the modules that call it): the same
// torch operations on tensors of the same shape, in the same order, and Python's double arithmetic between numbers. The
// result is as inaccurate as there; core/include/rf/rope_scaling.h has the formulas and the accurate computation.
// transformers lacks three types: "ntk" uses its default with the stretched base, "hope" its "proportional", and
// "clipped" follows its authors' code.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "rotary_rows.h"

namespace rf::nn {

namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// number / tensor, as Python's operator computes it.
at::Tensor over(double number, const at::Tensor& tensor) { return tensor.reciprocal() * number; }

// 2i / dim for i < pairs.
at::Tensor exponents(int64_t pairs, int64_t dim) { return at::arange(0, 2 * pairs, 2, at::kLong).to(at::kFloat) / dim; }

at::Tensor of_base(double base, int64_t dim) { return over(1.0, at::pow(at::Scalar(base), exponents(dim / 2, dim))); }

// Beyond the training length the base is a float32 tensor, because transformers has the length as a tensor.
at::Tensor dynamic(const RopeSpec& spec, int64_t sequence_length) {
  const int64_t dim = spec.rotary_dim;
  const double power = static_cast<double>(dim) / static_cast<double>(dim - 2);
  const double trained = static_cast<double>(spec.trained_length);
  if (sequence_length <= spec.trained_length) {
    const double growth = spec.factor * trained / trained - (spec.factor - 1);
    return of_base(spec.theta * std::pow(growth, power), dim);
  }
  const at::Tensor length = at::scalar_tensor(sequence_length, at::kLong);
  const at::Tensor growth = length * spec.factor / spec.trained_length - (spec.factor - 1);
  return over(1.0, at::pow(at::pow(growth, power) * spec.theta, exponents(dim / 2, dim)));
}

at::Tensor yarn(const RopeSpec& spec) {
  const double dim = static_cast<double>(spec.rotary_dim), trained = static_cast<double>(spec.trained_length);
  const auto correction = [&](double rotations) {
    return dim * std::log(trained / (rotations * 2 * std::numbers::pi)) / (2 * std::log(spec.theta));
  };
  double low = correction(spec.beta_fast), high = correction(spec.beta_slow);
  if (spec.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  const at::Tensor powers = at::pow(at::Scalar(spec.theta), exponents(spec.rotary_dim / 2, spec.rotary_dim));
  const at::Tensor extrapolated = over(1.0, powers), interpolated = over(1.0, powers * spec.factor);
  const at::Tensor ramp = ((at::arange(spec.rotary_dim / 2, at::kFloat) - low) / (high - low)).clamp(0, 1);
  const at::Tensor share = 1 - ramp;
  return interpolated * (1 - share) + extrapolated * share;
}

at::Tensor longrope(const RopeSpec& spec, int64_t sequence_length) {
  const std::vector<double>& divisors = sequence_length > spec.trained_length ? spec.long_factor : spec.short_factor;
  const at::Tensor powers = at::pow(at::Scalar(spec.theta), exponents(spec.rotary_dim / 2, spec.rotary_dim));
  return over(1.0, at::tensor(divisors, at::kFloat) * powers);
}

at::Tensor llama3(const RopeSpec& spec) {
  const at::Tensor unscaled = of_base(spec.theta, spec.rotary_dim);
  const double trained = static_cast<double>(spec.trained_length);
  const double low = spec.low_freq_factor, high = spec.high_freq_factor;
  const at::Tensor wavelength = over(kTwoPi, unscaled);
  const at::Tensor is_long = wavelength > trained / low, is_short = wavelength < trained / high;
  const at::Tensor divided = at::where(is_long, unscaled / spec.factor, unscaled);
  const at::Tensor smooth = (over(trained, wavelength) - low) / (high - low);
  const at::Tensor smoothed = (1 - smooth) * divided / spec.factor + smooth * divided;
  return at::where(is_short.logical_not() * is_long.logical_not(), smoothed, divided);
}

at::Tensor proportional(const RopeSpec& spec) {
  const at::Tensor powers = at::pow(at::Scalar(spec.theta), exponents(spec.rotating_pairs, spec.rotary_dim));
  const at::Tensor still = at::zeros({spec.rotary_dim / 2 - spec.rotating_pairs}, at::kFloat);
  return at::cat({over(1.0, powers), still}) / spec.factor;
}

at::Tensor clipped_frequencies(const RopeSpec& spec) {
  const at::Tensor unscaled = of_base(spec.theta, spec.rotary_dim);
  const int64_t kept = spec.rotary_dim / 2 - spec.clip_low_n;
  const at::Tensor share = (at::linspace(0.0, std::numbers::pi, spec.clip_low_n, at::kFloat).cos() + 1.0) * 0.5;
  return at::cat({unscaled.narrow(0, 0, kept), unscaled.narrow(0, kept, spec.clip_low_n) * share});
}

}  // namespace

at::Tensor float32_frequencies(const RopeSpec& spec, int64_t sequence_length) {
  const double dim = static_cast<double>(spec.rotary_dim);
  switch (spec.type) {
    case RopeType::kLinear: return of_base(spec.theta, spec.rotary_dim) / spec.factor;
    case RopeType::kNtk: return of_base(spec.theta * std::pow(spec.factor, dim / (dim - 2)), spec.rotary_dim);
    case RopeType::kDynamic: return dynamic(spec, sequence_length);
    case RopeType::kYarn: return yarn(spec);
    case RopeType::kLongrope: return longrope(spec, sequence_length);
    case RopeType::kLlama3: return llama3(spec);
    case RopeType::kProportional:
    case RopeType::kHope: return proportional(spec);
    case RopeType::kClipped: return clipped_frequencies(spec);
    case RopeType::kDefault: break;
  }
  return of_base(spec.theta, spec.rotary_dim);
}

}  // namespace rf::nn
