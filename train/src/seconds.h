// Time in seconds since some moment; never decreases.
#pragma once

#include "rf/io/progress.h"

namespace rf::train {

inline double now_seconds() { return 1e-9 * static_cast<double>(io::steady_ns()); }

}  // namespace rf::train
