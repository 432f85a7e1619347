// Six bits in each digit (files/base64.h).
#include "files/base64.h"

#include <cstdint>

namespace rf::text {

namespace {

constexpr std::string_view kBase64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

DecodedBase64 decode_base64(std::string_view digits) {
  DecodedBase64 decoded;
  uint32_t held = 0;
  int bits = 0;
  for (const char c : digits) {
    const size_t digit = kBase64Digits.find(c);
    if (digit == std::string_view::npos) {
      decoded.wrong = c;
      break;
    }
    held = held << 6 | static_cast<uint32_t>(digit);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    decoded.bytes.push_back(static_cast<char>(held >> bits & 0xFF));
  }
  return decoded;
}

std::string encode_base64(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](size_t at) -> uint32_t { return at < bytes.size() ? static_cast<uint8_t>(bytes[at]) : 0; };
    const uint32_t bits = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    const size_t left = bytes.size() - i;
    for (size_t digit = 0; digit < 4; ++digit) {
      text.push_back(digit <= left ? kBase64Digits[bits >> (18 - 6 * digit) & 63] : '=');
    }
  }
  return text;
}

}  // namespace rf::text
