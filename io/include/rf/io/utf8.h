// UTF-8, one code point at a time. Ill-formed input is cut as Python's decode(errors="replace") and the Unicode
// standard (section 3.9, "maximal subparts") do: each maximal subpart of a sequence is one U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rf {

constexpr char32_t kReplacement = 0xFFFD;

struct Decoded {
  char32_t code;
  int32_t length;  // bytes taken, at least 1
  bool valid;      // false: `code` is kReplacement and stands for an ill-formed sequence
};

// Decodes at the front of a text that is not empty. Returned from a call, the result would cost more than decoding.
[[gnu::always_inline]] inline Decoded decode_utf8(std::string_view text) {
  const auto byte = [text](size_t i) -> uint32_t { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  if (lead < 0xC2 || lead > 0xF4) return {kReplacement, 1, false};
  const int32_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and code points above U+10FFFF.
  const uint32_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint32_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return {kReplacement, 1, false};
  char32_t code = (lead & (0x7FU >> length)) << 6 | (byte(1) & 0x3F);
  for (int32_t i = 2; i < length; ++i) {
    if ((byte(static_cast<size_t>(i)) & 0xC0) != 0x80) return {kReplacement, i, false};
    code = code << 6 | (byte(static_cast<size_t>(i)) & 0x3F);
  }
  return {code, length, true};
}

// The same, and removes the character from the front of the text.
[[gnu::always_inline]] inline Decoded take_utf8(std::string_view& text) {
  const Decoded decoded = decode_utf8(text);
  text.remove_prefix(static_cast<size_t>(decoded.length));
  return decoded;
}

// The last character of a text that is not empty; not valid, of length 1, if the last bytes are not a complete one.
inline Decoded decode_last_utf8(std::string_view text) {
  for (size_t length = 1; length <= text.size() && length <= 4; ++length) {
    const Decoded decoded = decode_utf8(text.substr(text.size() - length));
    if (decoded.valid && static_cast<size_t>(decoded.length) == length) return decoded;
  }
  return {kReplacement, 1, false};
}

inline bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    if (!take_utf8(text).valid) return false;
  }
  return true;
}

// The ill-formed sequences of a text: its characters that are read as U+FFFD.
inline int64_t count_ill_formed(std::string_view text) {
  int64_t count = 0;
  while (!text.empty()) count += take_utf8(text).valid ? 0 : 1;
  return count;
}

inline bool begins_character(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; }

// The number of characters of valid UTF-8.
inline int32_t count_characters(std::string_view text) {
  int32_t count = 0;
  for (const char byte : text) count += begins_character(byte) ? 1 : 0;
  return count;
}

// `code` must be below 0x110000.
inline void append_utf8(char32_t code, std::string& out) {
  const auto tail = [&out, code](int shift) { out.push_back(static_cast<char>(0x80 | (code >> shift & 0x3F))); };
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | code >> 12));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace rf
