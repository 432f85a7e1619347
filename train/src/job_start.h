// Checks of a job with several ranks before its first step.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "ranks.h"
#include "rf/nn/model.h"
#include "rf/train/run_config.h"

namespace rf::train {

// Throws Error, naming the rank and the difference, unless all ranks have the same run file, data, platform
// (platform.h; threads may differ) and build of this library.
void require_same_job(const Ranks& ranks, const nlohmann::json& run, const nlohmann::json& data,
                      nlohmann::json platform);
// Throws Error unless all ranks have the same weights.
void require_same_weights(const Ranks& ranks, const nn::Model& model);
// Throws Error unless all ranks see the run directory of the first one.
void require_shared(const Ranks& ranks, const std::string& run_dir);
// Throws Error unless every stage has a micro-batch for each rank.
void require_work_for_all(const Ranks& ranks, const RunConfig& run);
// "2 processes; in each weights 498 MB, gradients 498 MB, ..": the memory for training without activations. parameters:
// trained ones.
std::string memory_note(const Ranks& ranks, const RunConfig& run, int64_t parameters);

}  // namespace rf::train
