// The average of checkpoints (Vaswani et al. 2017, section 6.1): the element-wise mean of their weights.
#pragma once

#include <string>
#include <vector>

namespace rf {

// Writes a model directory with the mean of the float32 weights of model directories with the same configuration,
// summed in double precision. Integer tensors, which are not trained, must be equal. Other files are copied from the
// first directory, except its training state and its position terms, which belong to its weights. Throws Error, naming
// directory and tensor, for different configurations, names or shapes, for dtypes other than float32, and for an output
// that exists.
void average_checkpoints(const std::vector<std::string>& model_dirs, const std::string& output_dir);

}  // namespace rf
