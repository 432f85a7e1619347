// Parameters and buffers as modules read them. A caller may own the tensors instead: a torch.nn.Module in Python, whose
// parameters may be replaced by load_state_dict(assign=True), functional_call or a parametrization. It passes its
// tensors for the duration of one call, and gradients flow to them.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <utility>
#include <vector>

namespace rf::nn {

// Reads as the registered tensor, or as its replacement in this thread's innermost ParameterScope.
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

// While it exists, given[i] replaces registered[i] for this thread.
class ParameterScope {
 public:
  // Both lists must have the same length.
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
