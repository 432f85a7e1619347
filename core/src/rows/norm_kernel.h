// The norm kernels' interface inside core: some rows by the best instruction set.
#ifndef RF_CORE_ROWS_NORM_KERNEL_H_
#define RF_CORE_ROWS_NORM_KERNEL_H_

#include "rf/rows.h"
#include "rows/tasks.h"

namespace rf::core {

// Work space for rows of `columns` elements.
int64_t norm_space_bytes(int64_t columns);

void norm_rows(const rf_norm_args& args, RowRange rows, void* space);

// Adds to sums[3][padded(columns)], the gradients of bias, gamma and beta.
void norm_backward_rows(const rf_norm_args& args, const rf_norm_grads& grads, RowRange rows, void* space, float* sums);

}  // namespace rf::core
#endif
