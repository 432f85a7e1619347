// Tensors of a module that Python keeps (script_tensors.h).
#include "script_tensors.h"

#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include "rf/io/error.h"

namespace rf::nn {

ScriptTensors::ScriptTensors(const torch::nn::Module& module, const char* where)
    : where_(where), parameters_(named(module.named_parameters())), buffers_(named(module.named_buffers())) {
  for (const TensorDict* tensors : {&parameters_, &buffers_}) {
    for (const auto& entry : *tensors) {
      names_.push_back(entry.key());
      registered_.push_back(entry.value());
    }
  }
}

void ScriptTensors::release() const {
  for (const at::Tensor& tensor : registered_) {
    tensor.set_data(at::zeros({}, tensor.options().device(at::kCPU)).expand(tensor.sizes()));
  }
}

void ScriptTensors::check(const std::vector<at::Tensor>& given) const {
  if (given.size() != registered_.size()) {
    fail(where_, "a call must have the {} parameters and buffers of the module, got {}", registered_.size(),
         given.size());
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].sym_sizes() != registered_[i].sym_sizes()) {
      fail(where_, "{} must keep its shape {}, got {}", names_[i], c10::str(registered_[i].sym_sizes()),
           c10::str(given[i].sym_sizes()));
    }
    if (given[i].is_meta()) {
      fail(where_, "{} must have values, got a tensor on the device meta. Hint: load_state_dict(.., assign=True)",
           names_[i]);
    }
  }
}

ParameterScope ScriptTensors::in_place(const std::vector<at::Tensor>& given) const {
  check(given);
  return {registered_, given};
}

void ScriptTensors::take(const std::vector<at::Tensor>& given) const {
  check(given);
  for (size_t i = 0; i < given.size(); ++i) registered_[i].set_data(given[i].detach().to(at::kCPU));
}

}  // namespace rf::nn
