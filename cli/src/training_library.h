// libroformer_training.so, made from cli/training: the commands that need PyTorch. The program opens it when such a
// command is called; everything else runs without the library and without PyTorch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "command.h"
#include "rf/train/pretrain.h"

namespace rf::cli {

// Adds the options and the work of such a command. Throws Error if its library or PyTorch cannot be loaded.
Configure training_command(const std::string& name);

// Facts about PyTorch: version, instructions, threads, encodings (a list of objects), attention and linear (their
// implementations). Throws Error like training_command().
nlohmann::json torch_facts(const Common& common);

// The results of `evaluate --data`. Throws Error like training_command().
nlohmann::json evaluate_data(const train::EvaluateOptions& options, const Common& common);

}  // namespace rf::cli
