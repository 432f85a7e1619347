// Every tolerance of the C++ tests, with its reason. Tests name them; none
// writes a literal.
#ifndef RF_TESTS_TOLERANCES_H_
#define RF_TESTS_TOLERANCES_H_

#include <limits>

namespace rf::tests {

// ---- core: rotary embedding ----
// A rotated element is c x_a - s x_b: two table roundings, two products and a sum, each half an ulp of terms that are
// summed in magnitude; 4 eps of |c x_a| + |s x_b| covers it. An element stored in 16 bits adds half its own ulp.
inline constexpr double kRotationEps = 4;
inline constexpr double kEpsF32 = 1.1920928955078125e-7;
inline constexpr double kEpsF64 = 2.220446049250313e-16;
inline constexpr double kEpsBf16 = 0.0078125;
inline constexpr double kEpsF16 = 0.0009765625;

// ---- data ----
// A sample mean against its expectation, in standard deviations (R-TRN-01). Seeds are fixed: a test that passes does so
// always.
inline constexpr double kSigmas = 4;
// Real tokens over slots of packed rows: less than 10 % is padding on documents of every kind.
inline constexpr double kMinPacked = 0.9;

// ---- nn ----
// A whole model against itself by another path, relative to the largest value (order of summation).
inline constexpr double kFloat32Model = 2e-5;

// ---- train ----
// A schedule in double: a handful of roundings, or the six digits of a golden number.
inline constexpr double kScheduleRelative = 1e-12;
// A float32 primitive on values of order 1.
inline constexpr double kFloat32Primitive = 2e-6;

// Lengths drawn in likeness may pad by this share of the tokens, where draws without regard to length pad by 0.7.
inline constexpr double kPaddedShare = 0.1;
// A hundred lengths in random order: about half of the steps rise, with a standard deviation of 0.03.
inline constexpr double kRisesHalf = 0.2;

// ---- core: rows ----
// An element of a row is some roundings and a sum over the row, whose error in lanes is that of its dozens of additions
// in a lane; bounds name the terms that are summed.
inline constexpr double kRowEps = 8;
// GELU: an exponential of relative error 1 eps, a quotient, a polynomial's end and four products, half an eps each; the
// rounded exponent is in the bound's 1 + t^2.
inline constexpr double kGeluEps = 4;

// ---- core: linear layer ----
// A float32 sum of n independent terms against float64, in eps of the sum of their magnitudes, which grows with n as
// the standard deviation of the error does: each of n partial sums of size sqrt(n) adds up to half an eps of itself.
// That is half an eps of the magnitudes; eight of these for the worst of all elements of all tests.
inline constexpr double kLinearEps = 4;
// int8: an exact sum as a float, two scales and the bias, half an eps each, of the magnitudes of product and bias.
inline constexpr double kInt8Eps = 2;
// The largest slope of GELU, 1.129 of the form with erf and 1.130 of the one with tanh, rounded up.
inline constexpr double kGeluSlope = 1.14;

// ---- core: attention in tiles ----
// An output is a mean of values, a gradient a sum of such products; each of the sums of float32 products behind a score
// adds some eps of its absolute terms to the probability. This is the rule for float32.
inline constexpr double kAttentionEps = 16;
inline constexpr double kScoreShare = 1;
// Results of 16 bits, of the largest: their own rounding is half an eps, and as much each are those of the products'
// two sides; where the terms of a sum cancel, theirs is left.
inline constexpr double kLowEps = 1.5;
inline constexpr double kLowCancels = 0.0005;
// Gradients of queries and keys subtract from dy.v_s the mean dy.out, whose out is rounded by half an eps: with two
// keys and 10 values, 0.002 of the terms is left in tiles of AMX.
inline constexpr double kLowRounded = 0.005;
// What is left of a sum in float64 that is 0, relative to its terms.
inline constexpr double kVanishes = 1e-12;

// ---- core: linear attention ----
// Sums of some hundred products of either sign in float32: a few eps of the largest result. 16-bit outputs enter the
// backward rounded, and its gradients are rounded to 16 bits again.
inline constexpr double kLinearAttentionEps = 16;
// The products of a chunk's 64 tokens are added one by one, at worst 64 roundings of half an eps to the same side in
// numerator and denominator, and some more to answer; chunks are added without loss, however many.
inline constexpr double kLinearWorstEps = 72;

}  // namespace rf::tests

#endif
