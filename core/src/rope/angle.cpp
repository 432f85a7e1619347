// Angles of rotary embedding (see the header). The product position x (hi + lo) is formed by two-product; multiples of
// pi/2 are subtracted with pi/2 in three parts (159 bits); libm sees only the reduced angle, |r| <= pi/4, and the
// remainder's low part enters by its first-order term.
#include "rope/angle.h"

#include <cmath>
#include <limits>

namespace rf::core {
namespace {

constexpr double kHalfPi[3] = {1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33};
constexpr double kTwoOverPi = 0.63661977236758138;

struct ReducedAngle {
  DoubleDouble remainder;  // |remainder| <= pi/4 and a little
  int quadrant = 0;        // subtracted multiples of pi/2, modulo 4
};

ReducedAngle reduce(DoubleDouble angle) {
  ReducedAngle reduced{angle, 0};
  // One pass is enough below 2^50; beyond it the first multiple is itself rounded and a second pass takes the rest.
  for (int pass = 0; pass < 3; ++pass) {
    const double multiple = std::nearbyint(reduced.remainder.hi * kTwoOverPi);
    if (multiple == 0) break;
    DoubleDouble& r = reduced.remainder;
    r = add(r, negate(two_product(multiple, kHalfPi[0])));
    r = add(r, negate(two_product(multiple, kHalfPi[1])));
    r = add(r, {-multiple * kHalfPi[2], 0});
    reduced.quadrant = (reduced.quadrant + static_cast<int>(std::fmod(multiple, 4.0)) + 4) % 4;
  }
  return reduced;
}

}  // namespace

CosSin cos_sin(double position, DoubleDouble frequency) {
  if (!(std::abs(position * frequency.hi) <= kMaxAngle)) {
    return {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
  }
  const ReducedAngle angle = reduce(multiply(frequency, position));
  const double c = std::cos(angle.remainder.hi);
  const double s = std::sin(angle.remainder.hi);
  const double cos = c - s * angle.remainder.lo;
  const double sin = s + c * angle.remainder.lo;
  switch (angle.quadrant) {
    case 0: return {cos, sin};
    case 1: return {-sin, cos};
    case 2: return {-cos, -sin};
    default: return {sin, -cos};
  }
}

}  // namespace rf::core
