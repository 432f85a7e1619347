// Parameters and buffers as modules read them. A caller that keeps tensors of its own in their place (a torch.nn.Module
// in Python, whose parameters may be replaced by load_state_dict(assign=True), functional_call or a parametrization)
// gives them for the time of one call, and gradients flow to those.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <utility>
#include <vector>

namespace rf::nn {

// Reads as the tensor that was registered, or as the one in its place in this thread's innermost ParameterScope.
class Parameter {
 public:
  Parameter() = default;  // undefined
  explicit Parameter(at::Tensor registered) : registered_(std::move(registered)) {}
  Parameter& operator=(const at::Tensor& registered) {
    registered_ = registered;
    return *this;
  }
  operator const at::Tensor&() const { return current(); }
  const at::Tensor* operator->() const { return &current(); }

 private:
  const at::Tensor& current() const;

  at::Tensor registered_;
};

// While it exists, given[i] is in the place of registered[i] for this thread.
class ParameterScope {
 public:
  // As many of the one as of the other.
  ParameterScope(const std::vector<at::Tensor>& registered, const std::vector<at::Tensor>& given);
  ~ParameterScope();
  ParameterScope(const ParameterScope&) = delete;
  ParameterScope& operator=(const ParameterScope&) = delete;

 private:
  friend class Parameter;
  std::unordered_map<const at::TensorImpl*, at::Tensor> given_;
  const ParameterScope* outer_;
};

}  // namespace rf::nn
