// Parameters of an encoding that every layer has for itself.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rf::nn {

// Registers layer.<i>.<name> = draw() for each layer i, and returns them in order.
std::vector<at::Tensor> layer_parameters(torch::nn::Module& module, int64_t layers, const std::string& name,
                                         const std::function<at::Tensor()>& draw);

}  // namespace rf::nn
