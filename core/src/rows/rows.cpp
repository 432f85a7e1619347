// C interface of the operations on rows (rf/rows.h): rules, then the kernels over rows or the reference loops.
#include "rf/rows.h"

#include <cmath>

#include "common/arguments.h"
#include "common/element.h"
#include "common/reference.h"
#include "common/target.h"
#include "rows/kernels.h"
#include "rows/tasks.h"

namespace rf::core {
namespace {

// Rules that operations on rows share.
class RowChecks {
 public:
  explicit RowChecks(const char* where) : where_(where) {}

  // Must come before the checks of arrays.
  void extents(rf_dtype dtype, int64_t rows, int64_t columns) {
    check_dtype(where_, dtype);
    check_at_least(where_, 0, {{rows, "rows"}, {columns, "columns"}});
    check_size(where_, {rows, columns}, "[rows, columns]");
    dtype_ = dtype;
    rows_ = rows;
    columns_ = columns;
  }

  // [rows, columns] with a stride between rows.
  void array(const void* data, int64_t stride, const char* name) const {
    check_pointer(where_, data, rows_ * columns_, element_bytes(dtype_), name);
    optional_array(data, stride, name);
  }
  void optional_array(const void* data, int64_t stride, const char* name) const {
    if (data == nullptr) return;
    check_pointer(where_, data, 0, element_bytes(dtype_), name);
    require(stride >= columns_, where_, name, "_stride must be at least columns = ", columns_, ", got ", stride);
    check_size(where_, {rows_, stride}, name);
  }
  // [columns] of the parameters' type; may be NULL.
  void parameter(const void* data, const char* name) const {
    check_pointer(where_, data, 0, row_element_bytes(dtype_), name);
  }
  // [rows] of `bytes` bytes each, or of the parameters' type.
  void row_numbers(const void* data, int64_t bytes, const char* name) const {
    check_pointer(where_, data, rows_, bytes, name);
  }
  void row_parameters(const void* data, const char* name) const { row_numbers(data, row_element_bytes(dtype_), name); }

 private:
  const char* where_;
  rf_dtype dtype_ = RF_F32;
  int64_t rows_ = 0, columns_ = 0;
};

bool in_loops(rf_dtype dtype) { return dtype == RF_F64 || use_reference(); }

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
  check_dropout("norm", x.dropout, "dropout");
  check.array(x.x, x.x_stride, "x");
  checks.stream.optional_array(x.residual, x.residual_stride, "residual");
  check.parameter(x.bias, "bias");
  check.parameter(x.gamma, "gamma");
  check.parameter(x.beta, "beta");
  return checks;
}

void forward(const rf_norm_args& x) {
  const RowChecks stream = check_norm(x).stream;
  stream.array(x.y, x.y_stride, "y");
  stream.optional_array(x.sum, x.sum_stride, "sum");
  if (in_loops(x.dtype)) return ref::norm(x);
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
  if (in_loops(x.dtype)) return ref::norm_backward(x, grads);
  const auto total = [](void* gradient) { return static_cast<float*>(gradient); };
  sum_over_rows(x.rows, x.columns, norm_space_bytes(x.columns),
                {total(grads.bias), total(grads.gamma), total(grads.beta)},
                [&](RowRange rows, void* space, float* sums) { norm_backward_rows(x, grads, rows, space, sums); });
}

RowChecks check_gelu(const rf_gelu_args& x) {
  RowChecks check("gelu");
  check.extents(x.dtype, x.rows, x.columns);
  require(x.form == RF_GELU_ERF || x.form == RF_GELU_TANH || x.form == RF_GELU_SILU, "gelu",
          "form must be RF_GELU_ERF, RF_GELU_TANH or RF_GELU_SILU, got ", static_cast<int>(x.form));
  check.array(x.x, x.x_stride, "x");
  check.parameter(x.bias, "bias");
  check.optional_array(x.factor, x.factor_stride, "factor");
  return check;
}

void forward(const rf_gelu_args& x) {
  check_gelu(x).array(x.y, x.y_stride, "y");
  if (in_loops(x.dtype)) return ref::gelu(x);
  for_row_blocks(x.rows, x.columns, kRowBlock, 0, [&](int64_t, RowRange rows, void*) { gelu_rows(x, rows); });
}

void backward(const rf_gelu_args& x, const rf_gelu_grads& grads) {
  const RowChecks check = check_gelu(x);
  require(x.factor == nullptr, "gelu", "factor must be NULL in the backward, got ", x.factor);
  check.array(grads.y, grads.y_stride, "grads->y");
  check.optional_array(grads.x, grads.x_stride, "grads->x");
  check.parameter(grads.bias, "grads->bias");
  if (in_loops(x.dtype)) return ref::gelu_backward(x, grads);
  sum_over_rows(x.rows, x.columns, 0, {static_cast<float*>(grads.bias)},
                [&](RowRange rows, void*, float* sums) { gelu_backward_rows(x, grads, rows, sums); });
}

// Rows per task of a thread; rows of logits are long.
constexpr int64_t kSoftmaxRows = 8;
constexpr int64_t kLogitsRows = 1;

RowChecks check_softmax(const rf_softmax_args& x) {
  RowChecks check("softmax");
  check.extents(x.dtype, x.rows, x.columns);
  check.array(x.y, x.y_stride, "y");
  return check;
}

void forward(const rf_softmax_args& x) {
  check_softmax(x).array(x.x, x.x_stride, "x");
  if (in_loops(x.dtype)) return ref::softmax(x);
  for_row_blocks(x.rows, x.columns, kSoftmaxRows, padded(x.columns) * int64_t{sizeof(float)},
                 [&](int64_t, RowRange rows, void* space) { softmax_rows(x, rows, space); });
}

void backward(const rf_softmax_args& x, const rf_softmax_grads& grads) {
  const RowChecks check = check_softmax(x);
  check.array(grads.y, grads.y_stride, "grads->y");
  check.array(grads.x, grads.x_stride, "grads->x");
  if (in_loops(x.dtype)) return ref::softmax_backward(x, grads);
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

void forward(const rf_cross_entropy_args& x) {
  const RowChecks check = check_cross_entropy(x);
  check.row_parameters(x.loss, "loss");
  if (in_loops(x.dtype)) return ref::cross_entropy(x);
  for_row_blocks(x.rows, x.columns, kLogitsRows, 0,
                 [&](int64_t, RowRange rows, void*) { cross_entropy_rows(x, rows); });
}

void backward(const rf_cross_entropy_args& x, const rf_cross_entropy_grads& grads) {
  const RowChecks check = check_cross_entropy(x);
  check.row_parameters(grads.loss, "grads->loss");
  require(grads.loss_stride >= 0, "cross_entropy", "grads->loss_stride must be >= 0, got ", grads.loss_stride);
  check.array(grads.logits, grads.logits_stride, "grads->logits");
  if (in_loops(x.dtype)) return ref::cross_entropy_backward(x, grads);
  for_row_blocks(x.rows, x.columns, kLogitsRows, 0,
                 [&](int64_t, RowRange rows, void*) { cross_entropy_backward_rows(x, grads, rows); });
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_norm_forward(const rf_norm_args* args) {
  return rf::core::with_arguments("norm", args, [](const auto& x) { rf::core::forward(x); });
}

extern "C" rf_status rf_norm_backward(const rf_norm_args* args, const rf_norm_grads* grads) {
  return rf::core::with_arguments("norm", args, grads, [](const auto&... given) { rf::core::backward(given...); });
}

extern "C" rf_status rf_gelu_forward(const rf_gelu_args* args) {
  return rf::core::with_arguments("gelu", args, [](const auto& x) { rf::core::forward(x); });
}

extern "C" rf_status rf_gelu_backward(const rf_gelu_args* args, const rf_gelu_grads* grads) {
  return rf::core::with_arguments("gelu", args, grads, [](const auto&... given) { rf::core::backward(given...); });
}

extern "C" rf_status rf_softmax_forward(const rf_softmax_args* args) {
  return rf::core::with_arguments("softmax", args, [](const auto& x) { rf::core::forward(x); });
}

extern "C" rf_status rf_softmax_backward(const rf_softmax_args* args, const rf_softmax_grads* grads) {
  return rf::core::with_arguments("softmax", args, grads, [](const auto&... given) { rf::core::backward(given...); });
}

extern "C" rf_status rf_cross_entropy_forward(const rf_cross_entropy_args* args) {
  return rf::core::with_arguments("cross_entropy", args, [](const auto& x) { rf::core::forward(x); });
}

extern "C" rf_status rf_cross_entropy_backward(const rf_cross_entropy_args* args, const rf_cross_entropy_grads* grads) {
  return rf::core::with_arguments("cross_entropy", args, grads,
                                  [](const auto&... given) { rf::core::backward(given...); });
}
