// GPT-2's alphabet: each of the 256 bytes has a distinct printable character, so that any text can be written as tokens
// of a JSON file. Printable Latin-1 characters stand for their number; the other bytes, in order, are U+0100 and the
// following characters.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "rf/io/utf8.h"

namespace rf::text {

inline constexpr char32_t kFirstSubstitute = 0x100;

constexpr bool stands_for_itself(char32_t c) {
  return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

constexpr std::array<char16_t, 256> make_letters() {
  std::array<char16_t, 256> letters{};
  char32_t substitute = kFirstSubstitute;
  for (char32_t byte = 0; byte < 256; ++byte) {
    letters[byte] = static_cast<char16_t>(stands_for_itself(byte) ? byte : substitute++);
  }
  return letters;
}
inline constexpr std::array<char16_t, 256> kLetterOfByte = make_letters();

constexpr std::array<int16_t, 0x144> make_bytes() {
  std::array<int16_t, 0x144> bytes{};
  bytes.fill(-1);
  for (size_t byte = 0; byte < 256; ++byte) bytes[kLetterOfByte[byte]] = static_cast<int16_t>(byte);
  return bytes;
}
inline constexpr std::array<int16_t, 0x144> kByteOfLetter = make_bytes();

constexpr char32_t kSpaceLetter = 0x120;  // of the byte 0x20
static_assert(kLetterOfByte[' '] == kSpaceLetter);

// Appends the bytes that the letters stand for; false, with nothing appended, if a character is not in the alphabet.
inline bool append_bytes(std::string_view letters, std::string& bytes) {
  const size_t before = bytes.size();
  while (!letters.empty()) {
    const char32_t letter = take_utf8(letters).code;
    if (letter >= kByteOfLetter.size() || kByteOfLetter[letter] < 0) {
      bytes.resize(before);
      return false;
    }
    bytes.push_back(static_cast<char>(kByteOfLetter[letter]));
  }
  return true;
}

inline std::string letters_of(std::string_view bytes) {
  std::string letters;
  for (const char byte : bytes) append_utf8(kLetterOfByte[static_cast<uint8_t>(byte)], letters);
  return letters;
}

}  // namespace rf::text
