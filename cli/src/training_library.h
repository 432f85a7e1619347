// libroformer_training.so, made from cli/training: the commands that need PyTorch. The program opens it when such a
// command is called; everything else runs without the library and without PyTorch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "command.h"
#include "rf/data/batcher.h"

namespace rf::cli {

// Adds the options and the work of such a command. Throws Error if its library or PyTorch cannot be loaded.
Configure training_command(const std::string& name);

// Facts about PyTorch: version, instructions, threads, encodings (a list of objects), attention and linear (their
// implementations). Throws Error like training_command().
nlohmann::json torch_facts(const Common& common);

// Options of `evaluate --data` (evaluate.cpp).
struct EvaluateData {
  std::string model_dir, data_dir;
  std::string split = "valid";
  std::optional<int64_t> max_length;  // absent: the default of train::EvaluateOptions
  int64_t batch_size = 32;
  data::Packing packing = data::Packing::kPacked;
  data::MaskOptions mask;
  data::Pairs pairs = data::Pairs::kNone;
  bool bfloat16 = false;  // compute in bfloat16 where training does
};
// The results of `evaluate --data`. Throws Error like training_command().
nlohmann::json evaluate_data(const EvaluateData& options, const Common& common);

}  // namespace rf::cli
