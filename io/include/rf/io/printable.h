// Text from a file, made safe for an error message: quoted, truncated to a readable length, with everything except
// printable ASCII as \xNN.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace rf::io {

inline std::string escaped(std::string_view text, size_t max_bytes) {
  std::string out;
  for (const char c : text.substr(0, max_bytes)) {
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > max_bytes) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

// The text of a JSON value of nlohmann's, cut.
template <typename Json>
std::string shown(const Json& value) {
  return escaped(value.dump(-1, ' ', true, Json::error_handler_t::replace), 120);
}

inline std::string printable(std::string_view text) { return fmt::format("\"{}\"", escaped(text, 120)); }

}  // namespace rf::io
