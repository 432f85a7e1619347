// Shared by the readers of the sections of tokenizer.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "models/byte_pair_model.h"
#include "rf/io/error.h"
#include "rf/io/strict_object.h"
#include "rf/text/tokenizer.h"

namespace rf::text {

inline constexpr char kTokenizerJsonWhere[] = "tokenizer_json";

class SectionReader {
 protected:
  using json = nlohmann::json;
  using StrictObject = io::StrictObject;
  using Prefix = ByteFallbackOptions::Prefix;

  explicit SectionReader(std::string path) : path_(std::move(path)) {}
  [[noreturn]] void refuse(const std::string& key, std::string_view rule, const json& value) const {
    constexpr size_t kShown = 200;
    fail(kTokenizerJsonWhere, "{}: \"{}\" must be {}, got {}", path_, key, rule, value.dump().substr(0, kShown));
  }
  StrictObject object(const json& value, const std::string& key) const {
    return {value, std::string(kTokenizerJsonWhere) + ": " + path_, key};
  }
  // One of several kinds of sections; its "type" was read.
  StrictObject typed(const json& value, const std::string& key) const {
    StrictObject section = object(value, key);
    section.find("type");
    return section;
  }
  static std::string type_of(const json& value) {
    const json type = value.is_object() ? value.value("type", json()) : json();
    return type.is_string() ? type.get<std::string>() : std::string();
  }
  // A key that may only have one value, of any type.
  void expect(StrictObject& section, const std::string& key, const json& wanted, std::string_view rule) const {
    if (const json* value = section.find(key); value != nullptr && *value != wanted) {
      refuse(section.path_of(key), rule, *value);
    }
  }
  // Reads a Metaspace.
  Prefix read_prefix(StrictObject& step) const {
    for (const char* key : {"replacement", "str_rep"}) expect(step, key, kSpaceMarker, "\"▁\"");
    const std::string scheme = step.text("prepend_scheme", "always");
    const bool adds = scheme != "never";
    expect(step, "add_prefix_space", adds, adds ? "true with this prepend_scheme" : "false with this prepend_scheme");
    if (scheme == "always") return Prefix::kAlways;
    if (scheme == "first") return Prefix::kFirst;
    if (adds) refuse(step.path_of("prepend_scheme"), "\"always\", \"first\" or \"never\"", scheme);
    return Prefix::kNever;
  }

  const std::string path_;
};

}  // namespace rf::text
