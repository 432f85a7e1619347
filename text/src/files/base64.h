// Base64 (RFC 4648), which tokenizer files use for bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rf::text {

struct DecodedBase64 {
  std::string bytes;          // up to a wrong character
  std::optional<char> wrong;  // the first character that is not a digit
};
// digits: without the '=' at their end.
DecodedBase64 decode_base64(std::string_view digits);
std::string encode_base64(std::string_view bytes);

}  // namespace rf::text
