// Double-double arithmetic: a number is an unevaluated sum hi + lo, |lo| <= ulp(hi) / 2, about 106 bits (Dekker 1971;
// Knuth, TAOCP 4.2.2; Shewchuk 1997). Contains only the operations for frequencies and angles. Must be compiled without
// contraction and without value-changing optimisations: fused operations are written out as std::fma.
#pragma once

#include <cmath>

namespace rf::core {

struct DoubleDouble {
  double hi = 0;
  double lo = 0;
};

// a + b exactly.
inline DoubleDouble two_sum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

// a + b exactly, for |a| >= |b|.
inline DoubleDouble quick_two_sum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

// a * b exactly.
inline DoubleDouble two_product(double a, double b) {
  const double product = a * b;
  return {product, std::fma(a, b, -product)};
}

inline DoubleDouble add(DoubleDouble a, DoubleDouble b) {
  DoubleDouble high = two_sum(a.hi, b.hi);
  const DoubleDouble low = two_sum(a.lo, b.lo);
  high = quick_two_sum(high.hi, high.lo + low.hi);
  return quick_two_sum(high.hi, high.lo + low.lo);
}

inline DoubleDouble negate(DoubleDouble a) { return {-a.hi, -a.lo}; }

inline DoubleDouble multiply(DoubleDouble a, double b) {
  const DoubleDouble product = two_product(a.hi, b);
  return quick_two_sum(product.hi, std::fma(a.lo, b, product.lo));
}

inline DoubleDouble multiply(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble product = two_product(a.hi, b.hi);
  return quick_two_sum(product.hi, product.lo + (a.hi * b.lo + a.lo * b.hi));
}

inline DoubleDouble divide(DoubleDouble a, double b) {
  const double quotient = a.hi / b;
  const DoubleDouble remainder = add(a, negate(two_product(quotient, b)));
  return quick_two_sum(quotient, remainder.hi / b);
}

inline DoubleDouble divide(DoubleDouble a, DoubleDouble b) {
  const double first = a.hi / b.hi;
  DoubleDouble remainder = add(a, negate(multiply(b, first)));
  const double second = remainder.hi / b.hi;
  remainder = add(remainder, negate(multiply(b, second)));
  return add(quick_two_sum(first, second), {remainder.hi / b.hi, 0});
}

// e^x, relative error about 1e-30, for |x| < 700.
DoubleDouble exp(DoubleDouble x);

// Natural logarithm, absolute error about 1e-30 (1 + |log x|), for finite x > 0.
DoubleDouble log(double x);
DoubleDouble log(DoubleDouble x);

}  // namespace rf::core
