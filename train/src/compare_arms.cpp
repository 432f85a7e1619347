// Arms of a comparison in the notation of the command line (rf/train/compare.h).
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/train/compare.h"

namespace rf::train {

namespace {

// Pieces between separators; separators inside brackets and quotes do not count.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> pieces(1);
  int depth = 0;
  bool quoted = false;
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '{' || c == '[')) ++depth;
    if (!quoted && (c == '}' || c == ']')) --depth;
    if (c == separator && depth == 0 && !quoted) {
      pieces.emplace_back();
    } else {
      pieces.back() += c;
    }
  }
  return pieces;
}

nlohmann::json value_of(const std::string& text) {
  const nlohmann::json parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_discarded() ? nlohmann::json(text) : parsed;
}

}  // namespace

std::vector<std::string> split_arms(const std::string& text) { return split(text, ','); }

EncodingConfig parse_arm(const std::string& text) {
  const std::vector<std::string> pieces = split(text, ':');
  if (pieces[0].empty()) fail("compare", "an encoding must have a name, got {}", io::printable(text));
  nlohmann::json options = nlohmann::json::object();
  for (size_t i = 1; i < pieces.size(); ++i) {
    const size_t equals = pieces[i].find('=');
    const std::string key = pieces[i].substr(0, equals);
    if (equals == std::string::npos || key.empty() || options.contains(key)) {
      fail("compare", "keys of an encoding must be written once, as name:key=value, got {} in {}",
           io::printable(pieces[i]), io::printable(text));
    }
    options[key] = value_of(pieces[i].substr(equals + 1));
  }
  return {pieces[0], options.dump()};
}

}  // namespace rf::train
