// Names of tensors in files of other libraries, by the tables of families/family.h.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>

#include "families/family.h"
#include "names.h"
#include "rf/model/foreign_models.h"
#include "rf/model/weights.h"

namespace rf {

namespace {

// Where `name` is `pattern` with a number for {}: that number, or "" for a pattern without {}.
std::optional<std::string_view> layer_in(std::string_view pattern, std::string_view name) {
  const size_t at = pattern.find("{}");
  if (at == std::string_view::npos) return name == pattern ? std::optional<std::string_view>("") : std::nullopt;
  const std::string_view before = pattern.substr(0, at), after = pattern.substr(at + 2);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after))
    return std::nullopt;
  const std::string_view layer = name.substr(before.size(), name.size() - before.size() - after.size());
  const bool number = std::ranges::all_of(layer, [](char c) { return c >= '0' && c <= '9'; });
  return number ? std::optional(layer) : std::nullopt;
}

std::string with_layer(std::string_view pattern, std::string_view layer) {
  const size_t at = pattern.find("{}");
  if (at == std::string_view::npos) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, at), layer, pattern.substr(at + 2));
}

bool is_of_encoder(std::string_view name) {
  return name.starts_with("embeddings") || name.starts_with("encoder.") || name.starts_with("pooler.");
}

// Whether the head may have the module. A name in files may stand for modules of several heads.
bool is_of_head(const ModelConfig& config, Head head, std::string_view module) {
  if (head == Head::kNone || is_of_encoder(module)) return true;
  const auto ends = [module](const HeadRow& row) { return module == row.last; };
  const bool is_last = std::ranges::any_of(kHeads, ends) || module == "classifier.out_proj";
  if (is_language_model(head)) return !is_last && !module.starts_with("classifier");
  return is_last ? module == head_stages(config, head).back().linear : !module.starts_with("cls.");
}

}  // namespace

std::string renamed(std::span<const ModuleName> rows, std::string_view ModuleName::*from,
                    std::string_view ModuleName::*to, std::string_view name,
                    const std::function<bool(std::string_view)>& fits) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return "";
  const std::string_view module = name.substr(0, dot), part = name.substr(dot);
  for (const ModuleName& row : rows) {
    const std::optional<std::string_view> layer = layer_in(row.*from, module);
    if (layer && !(row.*to).empty() && fits(row.module)) return with_layer(row.*to, *layer).append(part);
  }
  return "";
}

std::string gguf_name(const ModelConfig& config, const std::string& name) {
  return renamed(family_of(config).modules, &ModuleName::module, &ModuleName::in_gguf, name);
}

// Both names of a tensor of the encoder begin with a prefix in models with a head.
std::string file_name(const ModelConfig& config, Head head, const std::string& name) {
  if (!config.is_foreign()) return name;
  const ModelFamily& family = family_of(config);
  const std::string ours = encoder_prefix(config, head);
  std::string_view module = name;
  if (module.starts_with(ours)) module.remove_prefix(ours.size());
  const std::string found = renamed(family.modules, &ModuleName::module, &ModuleName::in_file, module);
  if (found.empty() && !(family.berts_names && is_of_encoder(module))) return name;
  const std::string in_file = found.empty() ? std::string(module) : found;
  return is_of_encoder(module) && head != Head::kNone ? std::string(family.prefix) + in_file : in_file;
}

std::string name_in_model(const ModelConfig& config, Head head, const std::string& name) {
  if (!config.is_foreign()) return name;
  const ModelFamily& family = family_of(config);
  std::string_view body = name;
  for (const std::string_view prefix : {family.prefix, family.old_prefix}) {
    if (!body.starts_with(prefix)) continue;
    body.remove_prefix(prefix.size());
    break;
  }
  std::string found = renamed(family.modules, &ModuleName::in_file, &ModuleName::module, body,
                              [&](std::string_view module) { return is_of_head(config, head, module); });
  if (found.empty() && family.berts_names) found = body;
  if (found.empty()) return name;
  return is_of_encoder(found) && head != Head::kNone ? body_prefix(config) + found : found;
}

}  // namespace rf
