// The checkpoints of a training run's directory, which are model directories: <run>/checkpoint-<step>.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace rf {

std::string checkpoint_path(const std::string& run_dir, int64_t step);
// Steps of the checkpoints, in ascending order.
std::vector<int64_t> checkpoint_steps(const std::string& run_dir);
// The newest checkpoint's path.
std::optional<std::string> newest_checkpoint(const std::string& run_dir);

// The directory to load a model from: `dir`, or, if it is an unfinished pretraining run, its newest checkpoint, with a
// message to `note`. Throws Error for a run without a checkpoint.
std::string model_of_run(const std::string& dir, const std::function<void(const std::string&)>& note);

// The average of checkpoints (Vaswani et al. 2017, section 6.1), the element-wise mean of their weights.
// Writes a model directory with the mean of the float32 weights of model directories with the same configuration,
// summed in double precision. Integer tensors, which are not trained, must be equal. Other files are copied from the
// first directory, except its training state and its position terms, which belong to its weights. Throws Error, naming
// directory and tensor, for different configurations, names or shapes, for dtypes other than float32, and for an output
// that exists.
void average_checkpoints(const std::vector<std::string>& model_dirs, const std::string& output_dir);

}  // namespace rf
