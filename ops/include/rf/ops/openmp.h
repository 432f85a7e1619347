// The OpenMP runtime of the process, which torch and the kernels share.
#pragma once

#include <string>

namespace rf::ops {

// A warning to show at start if the runtime may give a parallel region fewer threads than it requests; otherwise empty.
// The kernels of core divide the work by the actual number of threads; torch's products of bfloat16 divide it by the
// requested number and skip the shares of missing threads.
std::string openmp_warning();

}  // namespace rf::ops
