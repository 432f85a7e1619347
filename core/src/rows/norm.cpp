// C interface of the norms (rf/rows.h): rules, then the kernels over rows or the reference loops.
#include <cmath>

#include "common/arguments.h"
#include "common/error.h"
#include "common/target.h"
#include "rf/rows.h"
#include "rows/checks.h"
#include "rows/norm_kernel.h"
#include "rows/reference.h"
#include "rows/tasks.h"

namespace rf::core {
namespace {

// The rules of arrays of the dtype of x, and of arrays of the stream's dtype.
struct NormChecks {
  RowChecks x = RowChecks("norm"), stream = RowChecks("norm");
};

NormChecks check_norm(const rf_norm_args& x) {
  NormChecks checks;
  RowChecks& check = checks.x;
  check.extents(x.dtype, x.rows, x.columns);
  const rf_dtype stream = stream_type(x);
  require(stream == x.dtype || (stream == RF_F32 && (x.dtype == RF_BF16 || x.dtype == RF_F16)), "norm",
          "stream_dtype must be 0, dtype, or RF_F32 where dtype is RF_BF16 or RF_F16, got ", static_cast<int>(stream),
          " for dtype ", static_cast<int>(x.dtype));
  checks.stream.extents(stream, x.rows, x.columns);
  require(x.kind == RF_NORM_LAYER || x.kind == RF_NORM_RMS, "norm", "kind must be RF_NORM_LAYER or RF_NORM_RMS, got ",
          static_cast<int>(x.kind));
  require(x.eps >= 0 && std::isfinite(x.eps), "norm", "eps must be >= 0 and finite, got ", x.eps);
  check.dropout(x.dropout);
  check.array(x.x, x.x_stride, "x");
  checks.stream.optional_array(x.residual, x.residual_stride, "residual");
  check.parameter(x.bias, "bias");
  check.parameter(x.gamma, "gamma");
  check.parameter(x.beta, "beta");
  return checks;
}

void forward(const rf_norm_args& x) {
  check_norm(x).stream.array(x.y, x.y_stride, "y");
  if (x.dtype == RF_F64 || use_reference()) return ref::norm(x);
  for_row_blocks(x.rows, x.columns, kRowBlock, norm_space_bytes(x.columns),
                 [&](int64_t, RowRange rows, void* space) { norm_rows(x, rows, space); });
}

void backward(const rf_norm_args& x, const rf_norm_grads& grads) {
  const auto [check, stream] = check_norm(x);
  stream.array(grads.y, grads.y_stride, "grads->y");
  check.optional_array(grads.x, grads.x_stride, "grads->x");
  stream.optional_array(grads.residual, grads.residual_stride, "grads->residual");
  require(grads.x == nullptr || grads.x != grads.residual, "norm",
          "grads->x and grads->residual must be different arrays, got ", grads.x, " for both");
  check.parameter(grads.bias, "grads->bias");
  check.parameter(grads.gamma, "grads->gamma");
  check.parameter(grads.beta, "grads->beta");
  if (x.dtype == RF_F64 || use_reference()) return ref::norm_backward(x, grads);
  const auto total = [](void* gradient) { return static_cast<float*>(gradient); };
  sum_over_rows(x.rows, x.columns, norm_space_bytes(x.columns),
                {total(grads.bias), total(grads.gamma), total(grads.beta)},
                [&](RowRange rows, void* space, float* sums) { norm_backward_rows(x, grads, rows, space, sums); });
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_norm_forward(const rf_norm_args* args) {
  return rf::core::guarded("norm", [&] { rf::core::forward(rf::core::arguments("norm", args)); });
}

extern "C" rf_status rf_norm_backward(const rf_norm_args* args, const rf_norm_grads* grads) {
  return rf::core::guarded("norm", [&] {
    rf::core::backward(rf::core::arguments("norm", args), rf::core::arguments("norm", grads, "grads"));
  });
}
