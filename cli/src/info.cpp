// roformer info: describes the build, its use of this machine, and the encodings, which the training library lists.
#include <fmt/core.h>
#include <omp.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "command.h"
#include "rf/data/vectors.h"
#include "rf/status.h"
#include "training_library.h"

namespace rf::cli {

namespace {

struct InfoOptions {
  bool encodings = false, json = false;
};

// The part from the training library, or the reason why it is missing.
void add_torch_facts(nlohmann::json& facts, const Common& common) {
  try {
    const nlohmann::json torch = torch_facts(common);
    facts["libraries"]["torch"] = torch.at("version");
    facts["instructions"]["torch"] = torch.at("instructions");
    facts["threads"]["used"] = torch.at("threads");
    facts["attention"] = torch.at("attention");
    facts["linear"] = torch.at("linear");
    for (const nlohmann::json& encoding : torch.at("encodings")) facts["encodings"].push_back(encoding.at("name"));
  } catch (const Error& error) {
    facts["training"] = error.what();
  }
}

nlohmann::json facts_of(const Common& common) {
  nlohmann::json facts;
  facts["version"] = ROFORMER_VERSION;
  facts["instructions"] = {{"kernels", rf_target()}, {"meaning", rf_target_description()}};
  facts["threads"] = {{"used", omp_get_max_threads()}, {"machine", std::thread::hardware_concurrency()}};
  facts["build"] = {{"type", ROFORMER_BUILD_TYPE}, {"compiler", ROFORMER_COMPILER}};
  facts["libraries"] = {{"fmt", FMT_VERSION},
                        {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                                      NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
                        {"cli11", CLI11_VERSION}};
  if (const std::string arrow = data::arrow_version(); !arrow.empty()) facts["libraries"]["arrow"] = arrow;
  add_torch_facts(facts, common);
  return facts;
}

int run_info(const InfoOptions& options, const Common& common) {
  if (options.encodings) {
    emit_list(torch_facts(common).at("encodings"), {"name", "terms", "extrapolates", "summary"}, options.json);
  } else {
    emit(facts_of(common));
  }
  return kOk;
}

std::function<int()> configure_info(CLI::App& app, const Common& common) {
  auto options = std::make_shared<InfoOptions>();
  CLI::Option* const encodings =
      app.add_flag("--encodings", options->encodings, "Each position encoding: equation, source, terms, keys, cost");
  add_json(app, options->json)->needs(encodings);
  return [options, &common] { return run_info(*options, common); };
}

}  // namespace

Command info_command() {
  return {"info", "Encodings, instruction sets in use, build and versions", "roformer info", Command::Seed::kNotUsed,
          configure_info};
}

}  // namespace rf::cli
