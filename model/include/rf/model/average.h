// The average of checkpoints (Vaswani et al. 2017, section 6.1): the element-wise mean of their weights.
#pragma once

#include <string>
#include <vector>

namespace rf {

// Writes a model directory with the mean of the weights of model directories of the same configuration, float32, summed
// in double precision. Tensors of integers, which are not trained, must be equal. What else lies in the first one is
// copied, but not the state of training and the terms of its position encoding, which belong to its own weights. Throws
// Error, naming directory and tensor, for other configurations, names, shapes or dtypes than float32, and for an output
// that exists.
void average_checkpoints(const std::vector<std::string>& model_dirs, const std::string& output_dir);

}  // namespace rf
