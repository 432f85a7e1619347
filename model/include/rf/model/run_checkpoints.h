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

}  // namespace rf
