// The cases that options ask for, and how one is verified and timed.
#pragma once

#include "case.h"

namespace rf::bench {

// What a result may be off by. It tells a wrong result from a right one; the tests of the kernels hold ours to less.
inline constexpr double kEpsF32 = 0x1p-23, kEpsBf16 = 0x1p-7;
// float32 of any side, in eps of the largest element: sums over thousands of products of either sign.
inline constexpr double kMaxEps = 64;
// bfloat16: so many times the error of the plain formula in it, besides the rounding of the result.
inline constexpr double kPlainErrors = 2;
inline constexpr double kLastRounding = 0.5;

// Throws Error for a filter that is no regular expression, and for one that leaves no case.
Cases select_cases(const Options& options);

// Verifies and times all sides (rf/bench/bench.h). Throws std::runtime_error when one is wrong.
std::vector<Result> run_case(const Case& c, const Options& options);

}  // namespace rf::bench
