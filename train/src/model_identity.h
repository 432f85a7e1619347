// Whether two runs start from the same model.
#pragma once

#include <string>

#include "rf/text/tokenizer.h"

namespace rf::train {

// A hash of configuration, weights, tokenizer and the dictionaries given with it. `model_dir` must be a model
// directory.
std::string model_identity(const std::string& model_dir, const text::LoadOptions& load);

}  // namespace rf::train
