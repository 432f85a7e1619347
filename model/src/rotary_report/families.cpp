// The table of model types (parts.h).
#include <algorithm>
#include <utility>

#include "parts.h"

namespace rf {
namespace {

#include "families.inc"

constexpr std::string_view kLearned = "learned vectors at the input";
constexpr std::string_view kDistances = "terms by distance";
constexpr std::string_view kOrder = "the order of its recurrence";
constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
    {"albert", kLearned},    {"bart", kLearned},         {"bert", kLearned},        {"bloom", "ALiBi"},
    {"deberta", kDistances}, {"deberta-v2", kDistances}, {"distilbert", kLearned},  {"electra", kLearned},
    {"gpt2", kLearned},      {"gpt_bigcode", kLearned},  {"gpt_neo", kLearned},     {"mamba", kOrder},
    {"mamba2", kOrder},      {"mpnet", kDistances},      {"mpt", "ALiBi"},          {"mt5", kDistances},
    {"nezha", kDistances},   {"opt", kLearned},          {"roberta", kLearned},     {"rwkv", kOrder},
    {"t5", kDistances},      {"vit", kLearned},          {"xlm-roberta", kLearned}, {"xlnet", kDistances},
};

}  // namespace

std::span<const RotaryFamily> rotary_families() { return kFamilies; }

const RotaryFamily* find_rotary_family(std::string_view model_type) {
  if (model_type == "llama_bidirec") model_type = "llama";  // which is not in transformers
  const auto* found = std::ranges::find(kFamilies, model_type, &RotaryFamily::model_type);
  return found == std::end(kFamilies) ? nullptr : found;
}

std::string_view other_encoding(std::string_view model_type) {
  for (const auto& [type, encoding] : kOthers) {
    if (type == model_type) return encoding;
  }
  return "";
}

std::string_view refused_rotation(std::string_view model_type) {
  const std::string name = fmt::format(" {} ", model_type);
  for (const auto& [mechanism, types] : kRefused) {
    if (types.find(name) != std::string_view::npos) return mechanism;
  }
  return "";
}

}  // namespace rf
