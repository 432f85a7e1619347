// Reading and choosing prompts (rf/engine/prompts.h).
#include "rf/engine/prompts.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/io/strict_object.h"

namespace rf::engine {

Prompts read_prompts(const std::string& path) {
  const nlohmann::json file = io::read_json(path);
  io::StrictObject config(file, path, "");
  Prompts prompts;
  if (const auto* given = config.find("prompts"); given != nullptr && !given->is_null()) {
    if (!given->is_object()) fail(path, "prompts must be an object, got {}", given->dump());
    for (const auto& [name, prompt] : given->items()) {
      if (!prompt.is_string()) fail(path, "prompts.{} must be a text, got {}", name, prompt.dump());
      prompts.by_name[name] = prompt.get<std::string>();
    }
  }
  if (const auto* name = config.find("default_prompt_name"); name != nullptr && !name->is_null()) {
    prompts.default_name = config.text("default_prompt_name", "");
    if (!prompts.by_name.contains(*prompts.default_name)) {
      fail(path, "default_prompt_name must be one of the prompts, got {}", io::printable(*prompts.default_name));
    }
  }
  return prompts;
}

std::string prompt_of(const Prompts& prompts, const std::optional<std::string>& text,
                      const std::optional<std::string>& name, std::string_view where) {
  if (text && name) fail<ArgumentError>(where, "a prompt must be given as text or by name, got both");
  if (text) return *text;
  const std::optional<std::string>& chosen = name ? name : prompts.default_name;
  if (!chosen) return "";
  if (const auto found = prompts.by_name.find(*chosen); found != prompts.by_name.end()) return found->second;
  std::vector<std::string_view> known;
  for (const auto& [each, _] : prompts.by_name) known.push_back(each);
  fail<ArgumentError>(where, "the prompt must be one of the model's ({}), got {}",
                      known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")), io::printable(*chosen));
}

}  // namespace rf::engine
