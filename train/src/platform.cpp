// Facts about the process (platform.h).
#include "platform.h"

#include <map>
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/linear.h"
#include "rf/status.h"
#include "rf/train/runtime.h"

namespace rf::train {

namespace {

nlohmann::json facts(const std::string& device) {
  const RuntimeFacts facts = runtime_facts();
  return {{"device", device.substr(0, device.find(':'))},
          {"threads", threads()},
          {"torch", facts.torch_version},
          {"torch_instructions", facts.cpu_capability},
          {"kernel_instructions", rf_target()},
          {"compiler", __VERSION__},
          {"linear", std::map<std::string, std::string>(facts.linear.begin(), facts.linear.end())}};
}

void keep_linear_backend(const nlohmann::json& before, const nlohmann::json& now) {
  const auto product = [](const nlohmann::json& platform) {
    const nlohmann::json linear = platform.value("linear", nlohmann::json());
    return linear.is_object() ? linear.value("bfloat16", nlohmann::json()) : nlohmann::json();
  };
  const nlohmann::json began = product(before);
  if (began.is_string() && began != product(now)) rf_linear_set_backend(began.get<std::string>().c_str());
}

}  // namespace

nlohmann::json fresh_platform(const std::string& device) {
  rf_linear_set_backend("");  // an earlier run in the same process may have chosen another
  return facts(device);
}

nlohmann::json resumed_platform(const nlohmann::json& before, int64_t processes,
                                const std::function<void(const std::string&)>& note, const std::string& device) {
  keep_linear_backend(before, fresh_platform(device));
  nlohmann::json began = before, now = facts(device);
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
