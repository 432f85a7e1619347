// What programs know of a training job of several processes ("ranks"; src/ranks.h). Free of torch.
#pragma once

#include "rf/io/error.h"

namespace rf::train {

// What has failed on every rank, at the same point of the work.
struct FailedOnAll : Error {
  using Error::Error;
};

// Thrown for it on all ranks but the first, so that one process says it.
struct SaidByFirstRank : FailedOnAll {
  using FailedOnAll::FailedOnAll;
};

}  // namespace rf::train
