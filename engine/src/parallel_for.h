// A loop on all threads, or on the calling one.
#pragma once

#include <cstdint>
#include <exception>

namespace rf::engine {

// body(i) for i < count; one of the errors that it throws goes on to the caller. Without `parallel` no team of threads
// is made: an `if` clause of OpenMP would make one of a single thread, and allocate memory for it, in every call.
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
