// Percent-encoding of URIs (RFC 3986).
#pragma once

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>

namespace rf::io {

// The bytes of a text with its escapes decoded; a % without two hexadecimal digits stays.
inline std::string percent_decoded(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* const digits = text.data() + i + 1;
    const bool is_escape =
        text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    bytes += is_escape ? static_cast<char>(byte) : text[i];
    if (is_escape) i += 2;
  }
  return bytes;
}

}  // namespace rf::io
