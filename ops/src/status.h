// core's status codes as exceptions of PyTorch: a bad argument becomes ValueError in Python, c10::ValueError in C++.
#pragma once

#include <c10/util/Exception.h>

#include "rf/status.h"

namespace rf::ops {

inline void check_status(rf_status status) {
  if (status == RF_OK) return;
  TORCH_CHECK_VALUE(status != RF_INVALID_ARGUMENT, rf_last_error());
  TORCH_CHECK_NOT_IMPLEMENTED(status != RF_NOT_IMPLEMENTED, rf_last_error());
  TORCH_CHECK_WITH(OutOfMemoryError, status != RF_OUT_OF_MEMORY, rf_last_error());
  TORCH_CHECK(false, rf_last_error());
}

}  // namespace rf::ops
