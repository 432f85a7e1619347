// C interface of dropout (rf/dropout.h): rules, then the kernel or the reference loops.
#include "rf/dropout.h"

#include <cmath>

#include "element.h"
#include "error.h"
#include "ref/dropout.h"

namespace rf::core {
namespace {

void dropout(rf_dtype dtype, const void* x, void* y, int64_t count, double p, uint64_t seed, uint64_t stream) {
  const int64_t bytes = element_bytes(dtype);
  require(bytes != 0, "dropout", "dtype must be RF_F32, RF_F64, RF_BF16 or RF_F16, got ", static_cast<int>(dtype));
  require(count >= 0 && count <= INT64_MAX / bytes, "dropout", "count must be >= 0 and fit in int64 bytes, got ",
          count);
  require(p >= 0 && p < 1 - 0x1p-17, "dropout", "p must be in [0, 1 - 2^-17), got ", p);
  if (count == 0) return;
  require(x != nullptr && y != nullptr, "dropout", "x and y must not be NULL, got NULL");
  require(is_aligned(x, bytes) && is_aligned(y, bytes), "dropout", "x and y must be aligned to their element of ",
          bytes, " bytes, got ", x, " and ", y);
  const auto threshold = static_cast<uint32_t>(std::lround(65536 * p));
  ref::dropout(dtype, x, y, count, threshold, seed, stream);
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_dropout(rf_dtype dtype, const void* x, void* y, int64_t count, double p, uint64_t seed,
                                uint64_t stream) {
  return rf::core::guarded("dropout", [&] { rf::core::dropout(dtype, x, y, count, p, seed, stream); });
}
