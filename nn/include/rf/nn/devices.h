// Where tensors are. Positions, segments and masks are read by the host, so this module keeps them on the CPU, whatever
// the device of the model; parameters, token ids and hidden states are on that device, and so are terms. A forward pass
// therefore waits for a GPU only if the caller's positions, segments or masks are there.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace rf::nn {

// x on the CPU, for code that reads its values; waits for its device. Returns undefined and meta tensors unchanged.
at::Tensor on_cpu(const at::Tensor& x);

// x on `device`; a copy from the CPU to a GPU does not wait. Undefined stays undefined.
at::Tensor on_device(const at::Tensor& x, at::Device device);

// The dtype of products under autocast on `device`; nullopt: autocast is off there.
std::optional<at::ScalarType> autocast_dtype(at::Device device);

}  // namespace rf::nn
