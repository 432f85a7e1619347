// The parameters and buffers of a module that Python keeps (python/roformer_cpp/_script_module.py): Python owns
// torch.nn.Parameters and passes them to each call, so a call uses their current state (assigned, cast, sharded,
// parametrized).
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "rf/nn/parameter.h"
#include "script_terms.h"

namespace rf::nn {

class ScriptTensors {
 public:
  // where: for messages.
  ScriptTensors(const torch::nn::Module& module, const char* where);

  TensorDict parameters() const { return parameters_; }
  TensorDict buffers() const { return buffers_; }
  // Frees the values here; callers that requested them above keep them.
  void release() const;

  // While the result exists, the module computes with `given`: all parameters in their order, then all buffers. Throws
  // Error for a wrong number, a wrong shape, or a tensor without values.
  ParameterScope in_place(const std::vector<at::Tensor>& given) const;
  // The values, until release(); for code that reads modules by name.
  void take(const std::vector<at::Tensor>& given) const;

 private:
  void check(const std::vector<at::Tensor>& given) const;

  const char* where_;
  TensorDict parameters_, buffers_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> registered_;
};

}  // namespace rf::nn
