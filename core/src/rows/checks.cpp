// Argument rules of operations on rows (see the header).
#include "rows/checks.h"

#include "common/element.h"
#include "common/error.h"

namespace rf::core {

void RowChecks::extents(rf_dtype dtype, int64_t rows, int64_t columns) {
  require(element_bytes(dtype) != 0, where_, "dtype must be RF_F32, RF_F64, RF_BF16 or RF_F16, got ",
          static_cast<int>(dtype));
  require(rows >= 0, where_, "rows must be >= 0, got ", rows);
  require(columns >= 0, where_, "columns must be >= 0, got ", columns);
  int64_t bytes = sizeof(double);
  require(!__builtin_mul_overflow(bytes, rows, &bytes) && !__builtin_mul_overflow(bytes, columns, &bytes), where_,
          "the size of [rows, columns] in bytes must fit in int64, got ", rows, " and ", columns);
  dtype_ = dtype;
  rows_ = rows;
  columns_ = columns;
}

void RowChecks::dropout(double p) const {
  require(p >= 0 && p < 1 - 0x1p-17, where_, "dropout must be in [0, 1 - 2^-17), got ", p);
}

void RowChecks::array(const void* data, int64_t stride, const char* name) const {
  require(data != nullptr || rows_ * columns_ == 0, where_, name, " must not be NULL, got NULL");
  optional_array(data, stride, name);
}

void RowChecks::optional_array(const void* data, int64_t stride, const char* name) const {
  if (data == nullptr) return;
  const int64_t bytes = element_bytes(dtype_);
  require(is_aligned(data, bytes), where_, name, " must be aligned to its element of ", bytes, " bytes, got ", data);
  require(stride >= columns_, where_, name, "_stride must be at least columns = ", columns_, ", got ", stride);
  int64_t size = sizeof(double);
  require(!__builtin_mul_overflow(size, stride, &size) && !__builtin_mul_overflow(size, rows_, &size), where_,
          "the size of ", name, " in bytes must fit in int64, got ", stride, " for ", name, "_stride");
}

int64_t RowChecks::parameter_bytes() const { return row_element_bytes(dtype_); }

void RowChecks::parameter(const void* data, const char* name) const {
  require(is_aligned(data, parameter_bytes()), where_, name, " must be aligned to its element of ", parameter_bytes(),
          " bytes, got ", data);
}

void RowChecks::row_numbers(const void* data, int64_t bytes, const char* name) const {
  require(data != nullptr || rows_ == 0, where_, name, " must not be NULL, got NULL");
  require(is_aligned(data, bytes), where_, name, " must be aligned to its element of ", bytes, " bytes, got ", data);
}

}  // namespace rf::core
