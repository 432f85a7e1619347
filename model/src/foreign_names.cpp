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

using Numbers = std::vector<std::string_view>;

// Where `name` is `pattern` with a number for each {}: those numbers.
std::optional<Numbers> numbers_in(std::string_view pattern, std::string_view name) {
  Numbers numbers;
  for (size_t at = pattern.find("{}"); at != std::string_view::npos; at = pattern.find("{}")) {
    if (!name.starts_with(pattern.substr(0, at))) return std::nullopt;
    name.remove_prefix(at);
    pattern.remove_prefix(at + 2);
    const size_t end = std::min(name.find_first_not_of("0123456789"), name.size());
    if (end == 0) return std::nullopt;
    numbers.push_back(name.substr(0, end));
    name.remove_prefix(end);
  }
  return name == pattern ? std::optional(numbers) : std::nullopt;
}

std::string with_numbers(std::string_view pattern, const Numbers& numbers) {
  std::string name(pattern);
  for (const std::string_view number : numbers) {
    if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, number);
  }
  return name;
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
    if ((row.*to).empty() || !fits(row.module)) continue;
    if (const auto numbers = numbers_in(row.*from, module)) return with_numbers(row.*to, *numbers).append(part);
    if (const auto numbers = numbers_in(row.*from, name)) return with_numbers(row.*to, *numbers);
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
  const auto name_of = [&](std::span<const ModuleName> rows) {
    return renamed(rows, &ModuleName::module, &ModuleName::in_file, module);
  };
  const bool takes_last = (head == Head::kMultipleChoice && module.starts_with("classifier")) ||
                          (config.heads.later_names && module.starts_with("cls."));
  const std::string found =
      takes_last ? name_of(std::vector(family.modules.rbegin(), family.modules.rend())) : name_of(family.modules);
  if (found.empty() && !(family.berts_names && is_of_encoder(module))) return name;
  const std::string in_file = found.empty() ? std::string(module) : found;
  return is_of_encoder(module) && head != Head::kNone ? std::string(family.prefix) + in_file : in_file;
}

std::string name_in_model(const ModelConfig& config, Head head, const std::string& name) {
  if (!config.is_foreign()) return name;
  const ModelFamily& family = family_of(config);
  std::string_view body = name;
  // Llama and its relatives keep an older prefix in models that answer questions.
  const bool answers = head == Head::kQuestionAnswering && family.heads == Family::kDecoder;
  const std::string_view of_answers = answers ? "transformer." : family.prefix;
  for (const std::string_view prefix : {of_answers, family.prefix, family.old_prefix}) {
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
