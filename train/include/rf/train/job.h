// What programs know of a training job of several processes ("ranks"; src/ranks.h). Free of torch.
#pragma once

#include "rf/io/error.h"

namespace rf::train {

// Thrown on all ranks but the first by what has failed on every rank, so that one process says it.
struct SaidByFirstRank : Error {
  using Error::Error;
};

}  // namespace rf::train
