// The dropout kernel's interface inside core: a run of elements by the best instruction set.
#ifndef RF_CORE_DROPOUT_KERNEL_H_
#define RF_CORE_DROPOUT_KERNEL_H_

#include <cstdint>

#include "rf/dropout.h"

namespace rf::core {

// Elements that one step draws and applies.
inline constexpr int64_t kDropoutChunk = 2048;

// Elements first .. first + count - 1 of x and y (which point at element 0); first a multiple of kDropoutChunk.
// threshold = round(65536 p).
void drop_elements(rf_dtype dtype, const void* x, void* y, int64_t first, int64_t count, uint32_t threshold,
                   uint64_t seed, uint64_t stream);

}  // namespace rf::core
#endif
