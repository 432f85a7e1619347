// The length of rows that a model can read.
#pragma once

#include <cstdint>
#include <string>

#include "rf/nn/model.h"

namespace rf::train {

// Why the model cannot read rows of that many tokens (for example because a learned table ends); "" if it can. Runs no
// forward pass.
std::string why_too_long(const nn::Model& model, int64_t tokens);

}  // namespace rf::train
