// Parameters of an encoding by layer (layer_parameters.h).
#include "layer_parameters.h"

#include <memory>

namespace rf::nn {

namespace {

std::shared_ptr<torch::nn::Module> child(torch::nn::Module& parent, const std::string& name) {
  const auto children = parent.named_children();
  if (const auto* found = children.find(name)) return *found;
  return parent.register_module(name, std::make_shared<torch::nn::Module>());
}

}  // namespace

std::vector<at::Tensor> layer_parameters(torch::nn::Module& module, int64_t layers, const std::string& name,
                                         const std::function<at::Tensor()>& draw) {
  const std::shared_ptr<torch::nn::Module> all = child(module, "layer");
  std::vector<at::Tensor> parameters;
  for (int64_t i = 0; i < layers; ++i) {
    parameters.push_back(child(*all, std::to_string(i))->register_parameter(name, draw()));
  }
  return parameters;
}

}  // namespace rf::nn
