// C interface of dropout (rf/dropout.h): rules, then the kernel or the reference loops.
#include "rf/dropout.h"

#include <omp.h>

#include <algorithm>
#include <cmath>

#include "common/arguments.h"
#include "common/element.h"
#include "common/reference.h"
#include "common/target.h"
#include "rows/kernels.h"

namespace rf::core {
namespace {

// Below this many elements a call ends before a second thread has started.
constexpr int64_t kParallelElements = 32 * 1024;

void dropout(rf_dtype dtype, const void* x, void* y, int64_t count, double p, uint64_t seed, uint64_t stream) {
  check_dtype("dropout", dtype);
  const int64_t bytes = element_bytes(dtype);
  require(count >= 0 && count <= INT64_MAX / bytes, "dropout", "count must be >= 0 and fit in int64 bytes, got ",
          count);
  check_dropout("dropout", p, "p");
  if (count == 0) return;
  require(x != nullptr && y != nullptr, "dropout", "x and y must not be NULL, got NULL");
  require(is_aligned(x, bytes) && is_aligned(y, bytes), "dropout", "x and y must be aligned to their element of ",
          bytes, " bytes, got ", x, " and ", y);
  const auto threshold = static_cast<uint32_t>(std::lround(65536 * p));
  if (use_reference()) return ref::dropout(dtype, x, y, count, threshold, seed, stream);
  const int64_t chunks = (count + kDropoutChunk - 1) / kDropoutChunk;
  const auto run = [&](int64_t first, int64_t last) {
    const int64_t begin = first * kDropoutChunk, end = std::min(count, last * kDropoutChunk);
    drop_elements(dtype, x, y, begin, end - begin, threshold, seed, stream);
  };
  if (count < kParallelElements || omp_get_max_threads() == 1) return run(0, chunks);
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    run(chunks * thread / threads, chunks * (thread + 1) / threads);
  }
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_dropout(rf_dtype dtype, const void* x, void* y, int64_t count, double p, uint64_t seed,
                                uint64_t stream) {
  return rf::core::guarded("dropout", [&] { rf::core::dropout(dtype, x, y, count, p, seed, stream); });
}
