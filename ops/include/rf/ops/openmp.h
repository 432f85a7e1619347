// The OpenMP runtime of the process, which torch and the kernels share.
#pragma once

#include <string>

namespace rf::ops {

// A line to show at start where the runtime may give a parallel region fewer threads than it asks for, empty elsewhere.
// The kernels of core divide the work by the threads that came; torch's products of bfloat16 divide it by the threads
// that they asked for, and leave out the rest.
std::string openmp_warning();

}  // namespace rf::ops
