// C interface of GELU (rf/rows.h): rules, then the kernels over rows or the reference loops.
#include "common/arguments.h"
#include "common/error.h"
#include "common/target.h"
#include "rf/rows.h"
#include "rows/checks.h"
#include "rows/gelu_kernel.h"
#include "rows/reference.h"
#include "rows/tasks.h"

namespace rf::core {
namespace {

RowChecks check_gelu(const rf_gelu_args& x) {
  RowChecks check("gelu");
  check.extents(x.dtype, x.rows, x.columns);
  require(x.form == RF_GELU_ERF || x.form == RF_GELU_TANH, "gelu", "form must be RF_GELU_ERF or RF_GELU_TANH, got ",
          static_cast<int>(x.form));
  check.array(x.x, x.x_stride, "x");
  check.parameter(x.bias, "bias");
  return check;
}

void forward(const rf_gelu_args& x) {
  check_gelu(x).array(x.y, x.y_stride, "y");
  if (x.dtype == RF_F64 || use_reference()) return ref::gelu(x);
  for_row_blocks(x.rows, x.columns, kRowBlock, 0, [&](int64_t, RowRange rows, void*) { gelu_rows(x, rows); });
}

void backward(const rf_gelu_args& x, const rf_gelu_grads& grads) {
  const RowChecks check = check_gelu(x);
  check.array(grads.y, grads.y_stride, "grads->y");
  check.optional_array(grads.x, grads.x_stride, "grads->x");
  check.parameter(grads.bias, "grads->bias");
  if (x.dtype == RF_F64 || use_reference()) return ref::gelu_backward(x, grads);
  sum_over_rows(x.rows, x.columns, 0, {static_cast<float*>(grads.bias)},
                [&](RowRange rows, void*, float* sums) { gelu_backward_rows(x, grads, rows, sums); });
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_gelu_forward(const rf_gelu_args* args) {
  return rf::core::guarded("gelu", [&] { rf::core::forward(rf::core::arguments("gelu", args)); });
}

extern "C" rf_status rf_gelu_backward(const rf_gelu_args* args, const rf_gelu_grads* grads) {
  return rf::core::guarded("gelu", [&] {
    rf::core::backward(rf::core::arguments("gelu", args), rf::core::arguments("gelu", grads, "grads"));
  });
}
