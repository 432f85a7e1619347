// The memory of a tensor, for hand-written loops.
#pragma once

#include <ATen/core/Tensor.h>

#include "rf/io/error.h"

namespace rf::nn {

// Throws Error for a tensor on another device, whose values cannot be read here; name: for the message.
inline void check_on_cpu(const at::Tensor& x, const char* name) {
  if (!x.is_cpu()) fail("encoding", "{} must be on the CPU, got {}", name, x.device().str());
}

// Same, for a pointer to the values; the tensor must outlive the pointer.
template <class T>
const T* cpu_data(const at::Tensor& x, const char* name) {
  check_on_cpu(x, name);
  return x.const_data_ptr<T>();
}

}  // namespace rf::nn
