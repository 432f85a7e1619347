// The interface inside core of the kernels of softmax and cross-entropy: some rows by the best instruction set.
#ifndef RF_CORE_ROWS_SOFTMAX_KERNEL_H_
#define RF_CORE_ROWS_SOFTMAX_KERNEL_H_

#include "rf/rows.h"
#include "rows/tasks.h"

namespace rf::core {

// space: padded(columns) floats.
void softmax_rows(const rf_softmax_args& args, RowRange rows, void* space);
void softmax_backward_rows(const rf_softmax_args& args, const rf_softmax_grads& grads, RowRange rows);

void cross_entropy_rows(const rf_cross_entropy_args& args, RowRange rows);
void cross_entropy_backward_rows(const rf_cross_entropy_args& args, const rf_cross_entropy_grads& grads, RowRange rows);

}  // namespace rf::core
#endif
