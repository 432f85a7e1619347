// Calls of core: on as many threads as PyTorch's own operators have, and status codes as exceptions of PyTorch. A bad
// argument becomes ValueError in Python, c10::ValueError in C++.
#pragma once

#include <ATen/Parallel.h>
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

// Every kernel of core is called through this. OpenMP, and with it core, keeps the number of threads per calling
// thread. Asking PyTorch for the number sets it to that of torch.set_num_threads in a thread that has not asked before.
template <class... Parameters, class... Arguments>
void call_core(rf_status (*kernel)(Parameters...), Arguments... arguments) {
  at::get_num_threads();
  check_status(kernel(arguments...));
}

}  // namespace rf::ops
