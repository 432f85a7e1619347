// C interface of softmax and cross-entropy (rf/rows.h): rules, then the kernels over rows or the reference loops.
#include "common/arguments.h"
#include "common/error.h"
#include "common/target.h"
#include "rf/rows.h"
#include "rows/checks.h"
#include "rows/reference.h"
#include "rows/softmax_kernel.h"
#include "rows/tasks.h"

namespace rf::core {
namespace {

// Rows per task of a thread; rows of logits are long.
constexpr int64_t kSoftmaxRows = 8;
constexpr int64_t kLogitsRows = 1;

RowChecks check_softmax(const rf_softmax_args& x) {
  RowChecks check("softmax");
  check.extents(x.dtype, x.rows, x.columns);
  check.array(x.y, x.y_stride, "y");
  return check;
}

void softmax_forward(const rf_softmax_args& x) {
  check_softmax(x).array(x.x, x.x_stride, "x");
  if (x.dtype == RF_F64 || use_reference()) return ref::softmax(x);
  for_row_blocks(x.rows, x.columns, kSoftmaxRows, padded(x.columns) * int64_t{sizeof(float)},
                 [&](int64_t, RowRange rows, void* space) { softmax_rows(x, rows, space); });
}

void softmax_backward(const rf_softmax_args& x, const rf_softmax_grads& grads) {
  const RowChecks check = check_softmax(x);
  check.array(grads.y, grads.y_stride, "grads->y");
  check.array(grads.x, grads.x_stride, "grads->x");
  if (x.dtype == RF_F64 || use_reference()) return ref::softmax_backward(x, grads);
  for_row_blocks(x.rows, x.columns, kSoftmaxRows, 0,
                 [&](int64_t, RowRange rows, void*) { softmax_backward_rows(x, grads, rows); });
}

RowChecks check_cross_entropy(const rf_cross_entropy_args& x) {
  RowChecks check("cross_entropy");
  check.extents(x.dtype, x.rows, x.columns);
  require(x.columns >= 1, "cross_entropy", "columns must be >= 1, got ", x.columns);
  check.array(x.logits, x.logits_stride, "logits");
  check.row_numbers(x.targets, sizeof(int64_t), "targets");
  check.row_numbers(x.log_sum, sizeof(double), "log_sum");
  for (int64_t r = 0; r < x.rows; ++r) {
    const int64_t target = x.targets[r];
    require((target >= 0 && target < x.columns) || target == x.ignore_index, "cross_entropy", "targets[", r,
            "] must be in 0..", x.columns - 1, " or ignore_index = ", x.ignore_index, ", got ", target);
  }
  return check;
}

void cross_entropy_forward(const rf_cross_entropy_args& x) {
  const RowChecks check = check_cross_entropy(x);
  check.row_numbers(x.loss, check.parameter_bytes(), "loss");
  if (x.dtype == RF_F64 || use_reference()) return ref::cross_entropy(x);
  for_row_blocks(x.rows, x.columns, kLogitsRows, 0,
                 [&](int64_t, RowRange rows, void*) { cross_entropy_rows(x, rows); });
}

void cross_entropy_backward(const rf_cross_entropy_args& x, const rf_cross_entropy_grads& grads) {
  const RowChecks check = check_cross_entropy(x);
  check.row_numbers(grads.loss, check.parameter_bytes(), "grads->loss");
  require(grads.loss_stride >= 0, "cross_entropy", "grads->loss_stride must be >= 0, got ", grads.loss_stride);
  check.array(grads.logits, grads.logits_stride, "grads->logits");
  if (x.dtype == RF_F64 || use_reference()) return ref::cross_entropy_backward(x, grads);
  for_row_blocks(x.rows, x.columns, kLogitsRows, 0,
                 [&](int64_t, RowRange rows, void*) { cross_entropy_backward_rows(x, grads, rows); });
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_softmax_forward(const rf_softmax_args* args) {
  return rf::core::guarded("softmax", [&] { rf::core::softmax_forward(rf::core::arguments("softmax", args)); });
}

extern "C" rf_status rf_softmax_backward(const rf_softmax_args* args, const rf_softmax_grads* grads) {
  return rf::core::guarded("softmax", [&] {
    rf::core::softmax_backward(rf::core::arguments("softmax", args), rf::core::arguments("softmax", grads, "grads"));
  });
}

extern "C" rf_status rf_cross_entropy_forward(const rf_cross_entropy_args* args) {
  return rf::core::guarded("cross_entropy",
                           [&] { rf::core::cross_entropy_forward(rf::core::arguments("cross_entropy", args)); });
}

extern "C" rf_status rf_cross_entropy_backward(const rf_cross_entropy_args* args, const rf_cross_entropy_grads* grads) {
  return rf::core::guarded("cross_entropy", [&] {
    rf::core::cross_entropy_backward(rf::core::arguments("cross_entropy", args),
                                     rf::core::arguments("cross_entropy", grads, "grads"));
  });
}
