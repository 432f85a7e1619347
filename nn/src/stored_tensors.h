// Tensors of model directories: reading from files to memory, and writing.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "rf/io/safetensors.h"
#include "rf/model/weights.h"

namespace rf::nn {

// A copy in memory: file data need not be aligned.
at::Tensor read_tensor(const io::TensorView& view, WeightRole role = WeightRole::kMatrix);
// The values in the dtype of the model, in which they must be finite: 1e300 is not representable in float32.
at::Tensor finite_as(const at::Tensor& tensor, at::ScalarType dtype, const std::string& name);
void load_buffer(at::Tensor& buffer, const at::Tensor& stored, const std::string& name);
// Writes model.safetensors. Creates the directory if it is missing.
void write_tensors(const std::vector<WeightSpec>& specs, const std::vector<at::Tensor>& values,
                   const std::string& model_dir);

}  // namespace rf::nn
