// Facts about the process (platform.h).
#include "platform.h"

#include <map>
#include <nlohmann/json.hpp>

#include "rf/status.h"
#include "rf/train/runtime.h"

namespace rf::train {

nlohmann::json fresh_platform(const std::string& device) {
  const RuntimeFacts facts = runtime_facts();
  return {{"device", device.substr(0, device.find(':'))},
          {"threads", threads()},
          {"torch", facts.torch_version},
          {"torch_instructions", facts.cpu_capability},
          {"kernel_instructions", rf_target()},
          {"compiler", __VERSION__},
          {"linear", std::map<std::string, std::string>(facts.linear.begin(), facts.linear.end())}};
}

nlohmann::json resumed_platform(const nlohmann::json& before, int64_t processes,
                                const std::function<void(const std::string&)>& note, const std::string& device) {
  nlohmann::json began = before, now = fresh_platform(device);
  began.emplace("processes", 1);   // without it a run of one
  began.emplace("device", "cpu");  // likewise
  now["processes"] = processes;
  for (const auto& fact : now.items()) {
    const nlohmann::json was = began.value(fact.key(), nlohmann::json());
    if (was == fact.value()) continue;
    note(fmt::format("warning: {} was {} and is {}: the run continues, but its bits will differ", fact.key(),
                     was.dump(), fact.value().dump()));
  }
  return now;
}

}  // namespace rf::train
