// roformer info: the build, what it uses on this machine, and the encodings.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "command.h"
#include "rf/status.h"
#include "rf/train/runtime.h"

namespace rf::cli {

namespace {

struct Options {
  bool encodings = false, json = false;
};

nlohmann::json facts_of(const nlohmann::json& encodings) {
  std::vector<std::string> names;
  for (const nlohmann::json& encoding : encodings) names.push_back(encoding.at("name"));
  const train::RuntimeFacts torch = train::runtime_facts();
  nlohmann::json facts;
  facts["version"] = ROFORMER_VERSION;
  facts["encodings"] = names;
  facts["instructions"] = {
      {"kernels", rf_target()}, {"meaning", rf_target_description()}, {"torch", torch.cpu_capability}};
  for (const auto& [what, kernel] : torch.attention) facts["attention"][what] = kernel;
  for (const auto& [what, backend] : torch.linear) facts["linear"][what] = backend;
  facts["threads"] = {{"used", train::threads()}, {"machine", std::thread::hardware_concurrency()}};
  facts["build"] = {{"type", ROFORMER_BUILD_TYPE}, {"compiler", ROFORMER_COMPILER}};
  facts["libraries"] = {{"torch", torch.torch_version},
                        {"fmt", FMT_VERSION},
                        {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                                      NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
                        {"cli11", CLI11_VERSION}};
  return facts;
}

int run(const Options& options) {
  const nlohmann::json encodings = train::encodings();
  if (options.encodings) {
    emit_list(encodings, {"name", "terms", "extrapolates", "summary"}, options.json);
  } else {
    emit(facts_of(encodings));
  }
  return kOk;
}

std::function<int()> configure(CLI::App& app, const Common&) {
  auto options = std::make_shared<Options>();
  CLI::Option* const encodings =
      app.add_flag("--encodings", options->encodings, "Each position encoding: equation, source, terms, keys, cost");
  add_json(app, options->json)->needs(encodings);
  return [options] { return run(*options); };
}

}  // namespace

Command info_command() {
  return {"info", "Encodings, instruction sets in use, build and versions", "roformer info", Command::Seed::kNotUsed,
          configure};
}

}  // namespace rf::cli
