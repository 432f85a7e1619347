// The GELU kernels' interface inside core: some rows by the best instruction set.
#ifndef RF_CORE_ROWS_GELU_KERNEL_H_
#define RF_CORE_ROWS_GELU_KERNEL_H_

#include "rf/rows.h"
#include "rows/tasks.h"

namespace rf::core {

void gelu_rows(const rf_gelu_args& args, RowRange rows);

// Adds to sums[padded(columns)], the gradient of bias.
void gelu_backward_rows(const rf_gelu_args& args, const rf_gelu_grads& grads, RowRange rows, float* sums);

}  // namespace rf::core
#endif
