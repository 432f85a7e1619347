// The row kernels' interface inside core: some rows, or for dropout some elements, by the best instruction set.
#pragma once

#include "rf/dropout.h"
#include "rf/rows.h"
#include "rows/tasks.h"

namespace rf::core {

void gelu_rows(const rf_gelu_args& args, RowRange rows);

// Adds to sums[padded(columns)], the gradient of bias.
void gelu_backward_rows(const rf_gelu_args& args, const rf_gelu_grads& grads, RowRange rows, float* sums);

// Work space for rows of `columns` elements.
int64_t norm_space_bytes(int64_t columns);

void norm_rows(const rf_norm_args& args, RowRange rows, void* space);

// Adds to sums[3][padded(columns)], the gradients of bias, gamma and beta.
void norm_backward_rows(const rf_norm_args& args, const rf_norm_grads& grads, RowRange rows, void* space, float* sums);

// space: padded(columns) floats.
void softmax_rows(const rf_softmax_args& args, RowRange rows, void* space);
void softmax_backward_rows(const rf_softmax_args& args, const rf_softmax_grads& grads, RowRange rows);

void cross_entropy_rows(const rf_cross_entropy_args& args, RowRange rows);
void cross_entropy_backward_rows(const rf_cross_entropy_args& args, const rf_cross_entropy_grads& grads, RowRange rows);

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
