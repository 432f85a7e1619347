// Whether the numbers of a tensor can be looked at. Not so of meta tensors, nor while torch.compile, torch.export or a
// transform of torch.func traces a call: checks of values are then left out, and what depends on values takes its
// general form.
#pragma once

#include <ATen/core/Tensor.h>

namespace rf::nn {

bool values_are_known(const at::Tensor& x);

// Whether this thread is inside a transform of torch.func, which knows torch's own operators only.
bool is_inside_transform();

}  // namespace rf::nn
