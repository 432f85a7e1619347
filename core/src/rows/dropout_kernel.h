// The dropout kernel's interface inside core: a run of elements by the best instruction set.
#pragma once

#include <cstdint>

#include "rf/dropout.h"

namespace rf::core {

// Elements that share a counter.
inline constexpr int64_t kDropoutBlock = 8;
// Elements that one step draws and applies.
inline constexpr int64_t kDropoutChunk = 2048;
// Numbers are drawn in runs of at most this many.
inline constexpr int64_t kMaxDrawnAtOnce = 64;

// The sixteen-bit numbers of `count` elements from the first of block `block` on. `numbers` must hold count rounded
// up to kMaxDrawnAtOnce.
void draw_numbers(int64_t block, int64_t count, uint64_t seed, uint64_t stream, uint16_t* numbers);

// Elements first .. first + count - 1 of x and y (which point at element 0); first a multiple of kDropoutChunk.
// threshold = round(65536 p).
void drop_elements(rf_dtype dtype, const void* x, void* y, int64_t first, int64_t count, uint32_t threshold,
                   uint64_t seed, uint64_t stream);

}  // namespace rf::core
