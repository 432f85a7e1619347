// Options of `evaluate --data` (evaluate.cpp) for the training library (../training/evaluate.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rf/data/batcher.h"

namespace rf::cli {

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

}  // namespace rf::cli
