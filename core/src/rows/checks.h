// Argument rules that operations on rows share. Each broken rule throws InvalidArgument with the name of the operation.
#ifndef RF_CORE_ROWS_CHECKS_H_
#define RF_CORE_ROWS_CHECKS_H_

#include <cstdint>

#include "rf/rows.h"

namespace rf::core {

// The element type of residual, y and their gradients.
inline rf_dtype stream_type(const rf_norm_args& x) { return x.stream_dtype == rf_dtype{} ? x.dtype : x.stream_dtype; }

class RowChecks {
 public:
  explicit RowChecks(const char* where) : where_(where) {}

  // Must come before the checks of arrays.
  void extents(rf_dtype dtype, int64_t rows, int64_t columns);
  void dropout(double p) const;
  // [rows, columns] with a stride between rows.
  void array(const void* data, int64_t stride, const char* name) const;
  void optional_array(const void* data, int64_t stride, const char* name) const;
  // [count] of the parameters' type; may be NULL.
  void parameter(const void* data, const char* name) const;
  // [rows] of `bytes` bytes each.
  void row_numbers(const void* data, int64_t bytes, const char* name) const;
  int64_t parameter_bytes() const;

 private:
  const char* where_;
  rf_dtype dtype_ = RF_F32;
  int64_t rows_ = 0, columns_ = 0;
};

}  // namespace rf::core
#endif
