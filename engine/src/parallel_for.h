// A loop on all threads, or on the calling one.
#pragma once

#include <cstdint>
#include <exception>

namespace rf::engine {

// body(i) for i < count; the caller receives one of the errors that it throws. Without `parallel`, no team of threads
// is created: an `if` clause of OpenMP would create a team of one, and allocate memory for it, in every call.
template <class Body>
void parallel_for(int64_t count, bool parallel, const Body& body) {
  if (!parallel) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < count; ++i) {
    try {
      body(i);
    } catch (...) {
#pragma omp critical(rf_parallel_for)
      error = std::current_exception();
    }
  }
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace rf::engine
