// Element types of the C interface: their sizes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rf/status.h"

namespace rf::core {

// Size in bytes; 0 for a value that is not an rf_dtype.
inline int64_t element_bytes(rf_dtype dtype) {
  switch (dtype) {
    case RF_F32: return 4;
    case RF_F64: return 8;
    case RF_BF16:
    case RF_F16: return 2;
  }
  return 0;
}

// The same of an element of a rotation's rows: double for float64 data, otherwise float.
inline int64_t row_element_bytes(rf_dtype dtype) { return dtype == RF_F64 ? 8 : 4; }

// The type of parameters, and of numbers per row, for arrays of `dtype`.
inline rf_dtype parameter_type(rf_dtype dtype) { return dtype == RF_F64 ? RF_F64 : RF_F32; }

inline bool is_aligned(const void* pointer, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(bytes) == 0;
}

}  // namespace rf::core
