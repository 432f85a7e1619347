// Replaces registered tensors (parameter.h).
#include "rf/nn/parameter.h"

namespace rf::nn {

namespace {
thread_local const ParameterScope* innermost = nullptr;
}

ParameterScope::ParameterScope(const std::vector<at::Tensor>& registered, const std::vector<at::Tensor>& given)
    : outer_(innermost) {
  for (size_t i = 0; i < given.size(); ++i) given_.emplace(registered.at(i).unsafeGetTensorImpl(), given[i]);
  innermost = this;
}

ParameterScope::~ParameterScope() { innermost = outer_; }

const at::Tensor& Parameter::current() const {
  if (innermost == nullptr || !registered_.defined()) return registered_;
  const auto found = innermost->given_.find(registered_.unsafeGetTensorImpl());
  return found == innermost->given_.end() ? registered_ : found->second;
}

}  // namespace rf::nn
