// The table of targets.
#include "rf/fuzz/targets.h"

#include "target_functions.h"

namespace rf::fuzz {

namespace {

constexpr Target kTargets[] = {
    {"config_json", config_json},         {"safetensors", safetensors}, {"model_directory", model_directory},
    {"tokenizer_files", tokenizer_files}, {"input_files", input_files}, {"doctor", doctor},
    {"gguf_model", gguf_model},
};

}  // namespace

std::span<const Target> targets() { return kTargets; }

const Target* find_target(std::string_view name) {
  for (const Target& target : kTargets) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

}  // namespace rf::fuzz
