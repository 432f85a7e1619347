// A loop on all threads, or on the calling one.
#pragma once

#include <cstdint>

namespace rf::engine {

// body(i) for i < count; it may not throw. Without `parallel` no team of threads is made: an `if` clause of OpenMP
// would make one of a single thread, and allocate memory for it, in every call.
template <class Body>
void parallel_for(int64_t count, bool parallel, const Body& body) {
  if (!parallel) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < count; ++i) body(i);
}

}  // namespace rf::engine
