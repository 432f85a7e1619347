// The facts that affect the bits of a run besides its run file and data: threads, versions, instruction sets, the
// product of linear layers. Checkpoints record them.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rf::train {

// The facts of this process. device: of the run.
nlohmann::json fresh_platform(const std::string& device = "cpu");
// For a run that began on `before`: calls `note` for every fact that differs. Returns this process's facts and the
// number of processes.
nlohmann::json resumed_platform(const nlohmann::json& before, int64_t processes,
                                const std::function<void(const std::string&)>& note, const std::string& device = "cpu");

}  // namespace rf::train
