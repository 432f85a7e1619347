// What a trained experiment costs at least, before it is started.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rf::reproduce {

// Floating-point operations of the pretraining runs in an experiment's settings: 6 for each weight that is no
// embedding and each token (forward and backward), 12 L C T for a token's scores and sums over T keys, and the
// vocabulary's projection of the tokens that are predicted. Fine-tuning is not counted.
double pretraining_operations(const nlohmann::json& settings);

// One sentence: operations, and the time they take at least at the rate at which this machine multiplies matrices,
// which is measured for a second. "" if nothing is pretrained.
std::string cost_text(const nlohmann::json& settings);

}  // namespace rf::reproduce
