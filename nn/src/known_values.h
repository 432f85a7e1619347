// Whether the values of a tensor can be read, and its memory for hand-written loops.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "rf/io/error.h"

namespace rf::nn {

// False for meta tensors, and while torch.compile, torch.export or a transform of torch.func traces a call: value
// checks are then skipped, and value-dependent code takes its general form.
bool values_are_known(const at::Tensor& x);

// Whether this thread is inside a transform of torch.func, which supports only torch's own operators.
bool is_inside_transform();

// While it exists, this thread is outside all transforms: for tensors that do not depend on a transform's tensors.
struct OutsideTransforms {
  c10::impl::ExcludeDispatchKeyGuard front{c10::DispatchKey::FuncTorchDynamicLayerFrontMode};
  c10::impl::ExcludeDispatchKeyGuard back{c10::DispatchKey::FuncTorchDynamicLayerBackMode};
};

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
