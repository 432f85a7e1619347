// Prompts of sentence-transformers: texts that are put before others, by name.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "rf/engine/model.h"

namespace rf::engine {

struct Prompts {
  std::map<std::string, std::string> by_name;
  std::optional<std::string> default_name;  // the name of one prompt
};

// Reads the keys "prompts" and "default_prompt_name" of a config_sentence_transformers.json. Throws Error for invalid
// values.
RF_ENGINE_API Prompts read_prompts(const std::string& path);

// The requested prompt, as text or by name; by default the prompt of default_name, else "". Throws ArgumentError,
// [where], if both are given and for an unknown name.
RF_ENGINE_API std::string prompt_of(const Prompts& prompts, const std::optional<std::string>& text,
                                    const std::optional<std::string>& name, std::string_view where);

}  // namespace rf::engine
