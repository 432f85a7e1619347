// How long the rows may be that a model reads.
#pragma once

#include <cstdint>
#include <string>

#include "rf/nn/model.h"

namespace rf::train {

// Why the model cannot read rows of that many tokens (the end of a learned table, for one); "" when it can. Runs
// no forward pass.
std::string why_too_long(const nn::Model& model, int64_t tokens);

}  // namespace rf::train
