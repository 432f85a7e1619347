// The memory of a tensor, for loops of our own.
#pragma once

#include <ATen/core/Tensor.h>

#include "rf/io/error.h"

namespace rf::nn {

// Throws Error for a tensor of another device, whose pointer is no address here; name: for the message. The tensor must
// live as long as the pointer is used.
template <class T>
const T* cpu_data(const at::Tensor& x, const char* name) {
  if (!x.is_cpu()) fail("encoding", "{} must be on the CPU, got {}", name, x.device().str());
  return x.const_data_ptr<T>();
}

}  // namespace rf::nn
