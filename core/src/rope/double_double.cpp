// Exponential and logarithm in double-double (see the header).
#include "rope/double_double.h"

namespace rf::core {
namespace {

// ln 2 in three parts; the third serves only large exponents.
constexpr double kLn2[3] = {0.69314718055994529, 2.3190468138462996e-17, 5.7077084384162121e-34};

// e^r - 1 by its Taylor series, for |r| < 7e-4: the tenth term is below 1e-38.
DoubleDouble expm1_series(DoubleDouble r) {
  DoubleDouble sum = r;
  DoubleDouble term = r;
  for (int n = 2; n < 10; ++n) {
    term = divide(multiply(term, r), n);
    sum = add(sum, term);
  }
  return sum;
}

}  // namespace

DoubleDouble exp(DoubleDouble x) {
  // x = k ln 2 + 2^9 r; then e^(2^9 r) - 1 by nine doublings p -> 2 p + p^2, which keep the digits of a small p.
  constexpr int kDoublings = 9;
  const double k = std::nearbyint(x.hi / kLn2[0]);
  DoubleDouble r = add(x, negate(two_product(k, kLn2[0])));
  r = add(r, negate(two_product(k, kLn2[1])));
  r = add(r, {-k * kLn2[2], 0});
  constexpr double kShrink = 1.0 / (1 << kDoublings);
  DoubleDouble p = expm1_series({r.hi * kShrink, r.lo * kShrink});
  for (int i = 0; i < kDoublings; ++i) p = add({2 * p.hi, 2 * p.lo}, multiply(p, p));
  p = add({1, 0}, p);
  const int exponent = static_cast<int>(k);
  return {std::ldexp(p.hi, exponent), std::ldexp(p.lo, exponent)};
}

DoubleDouble log(double x) {
  // Newton on e^y = mantissa: y <- y + (m e^-y - 1), twice from double precision.
  int exponent = 0;
  const double mantissa = std::frexp(x, &exponent);
  DoubleDouble y = {std::log(mantissa), 0};
  for (int i = 0; i < 2; ++i) y = add(y, add(multiply(exp(negate(y)), mantissa), {-1, 0}));
  y = add(y, two_product(exponent, kLn2[0]));
  return add(y, two_product(exponent, kLn2[1]));
}

DoubleDouble log(DoubleDouble x) {
  // ln hi + ln(1 + lo/hi), whose second-order term is below 1e-32.
  return add(log(x.hi), divide({x.lo, 0}, x.hi));
}

}  // namespace rf::core
