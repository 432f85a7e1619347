// Whether the values of a tensor can be read. False for meta tensors, and while torch.compile, torch.export or a
// transform of torch.func traces a call: value checks are then skipped, and value-dependent code takes its general
// form.
#pragma once

#include <ATen/core/Tensor.h>

namespace rf::nn {

bool values_are_known(const at::Tensor& x);

// Whether this thread is inside a transform of torch.func, which supports only torch's own operators.
bool is_inside_transform();

}  // namespace rf::nn
