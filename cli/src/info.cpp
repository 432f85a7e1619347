// roformer info: what this build is and what it uses on this machine.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "command.h"
#include "rf/status.h"
#include "rf/train/runtime.h"

namespace rf::cli {

std::function<int()> configure_info(CLI::App&, const Common&) {
  return [] {
    const train::RuntimeFacts torch = train::runtime_facts();
    nlohmann::json facts;
    facts["version"] = ROFORMER_VERSION;
    facts["encodings"] = {"rope"};
    facts["instructions"] = {{"kernels", rf_target()}, {"torch", torch.cpu_capability}};
    facts["threads"] = {{"used", train::threads()}, {"machine", std::thread::hardware_concurrency()}};
    facts["build"] = {{"type", ROFORMER_BUILD_TYPE}, {"compiler", ROFORMER_COMPILER}};
    facts["libraries"] = {{"torch", torch.torch_version},
                          {"fmt", FMT_VERSION},
                          {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                                        NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
                          {"cli11", CLI11_VERSION}};
    emit(facts);
    return kOk;
  };
}

}  // namespace rf::cli
