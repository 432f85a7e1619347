// Shared by the gradient kernels of all operators.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <optional>

namespace rf::ops {

inline bool needs_gradient(const at::Tensor& tensor) { return at::GradMode::is_enabled() && tensor.requires_grad(); }

// Without this check a tangent would be dropped silently.
inline void check_no_tangent(const char* where, const char* name, const std::optional<at::Tensor>& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(!torch::autograd::isFwGradDefined(tensor), "[", where, "] ", name,
                              " must not carry a tangent: forward-mode differentiation is not implemented; got a "
                              "tensor that does. Hint: reverse mode, for example torch.autograd.grad");
}

// For arguments without a gradient.
inline void check_no_gradient(const char* where, const char* name, const std::optional<at::Tensor>& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(!(tensor && needs_gradient(*tensor)), "[", where, "] ", name,
                              " must not require grad, got a tensor that does. Hint: ", name, ".detach()");
}

}  // namespace rf::ops
