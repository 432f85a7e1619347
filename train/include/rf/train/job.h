// The public part of training jobs with several processes ("ranks"; src/ranks.h). Free of torch.
#pragma once

#include <cstdint>
#include <string_view>

#include "rf/io/error.h"

namespace rf::train {

// An error on every rank, at the same point of the work.
struct FailedOnAll : Error {
  using Error::Error;
};

// Thrown instead on all ranks except the first, so that only one process reports the error.
struct SaidByFirstRank : FailedOnAll {
  using FailedOnAll::FailedOnAll;
};

// A loss or a gradient of a step that is not finite: the run has diverged. In a job of several processes it becomes one
// of the errors above.
struct Diverged : FailedOnAll {
  Diverged(std::string_view where, std::string_view what, int64_t at_step) : FailedOnAll(where, what), step(at_step) {}
  int64_t step;
};

}  // namespace rf::train
