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

inline std::string printable(std::string_view text) { return fmt::format("\"{}\"", escaped(text, 120)); }

}  // namespace rf::io
