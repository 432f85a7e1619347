// The cases that options ask for, and how one is verified and timed.
#pragma once

#include "case.h"

namespace rf::bench {

// Throws Error for a filter that is no regular expression, and for one that leaves no case.
Cases select_cases(const Options& options);

// Verifies and times all sides (rf/bench/bench.h). Throws std::runtime_error when one is wrong.
std::vector<Result> run_case(const Case& c, const Options& options);

}  // namespace rf::bench
