// The row kernels' interface inside core: some rows by the best instruction set.
#pragma once

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

}  // namespace rf::core
