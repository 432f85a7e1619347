// What the bits of a run depend on beside its run file and data: threads, versions, instruction sets, the product of
// linear layers. Checkpoints record it.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rf::train {

// The facts of this process, with the product of linear layers that it chooses by default.
nlohmann::json fresh_platform();
// For a run that was begun on `before`: keeps its product of linear layers where this machine has it. `note` is told of
// every fact that differs all the same. Returns this process's facts.
nlohmann::json resumed_platform(const nlohmann::json& before, const std::function<void(const std::string&)>& note);

}  // namespace rf::train
