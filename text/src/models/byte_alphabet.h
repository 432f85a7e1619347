// GPT-2's alphabet: each of the 256 bytes has a distinct printable character, so that any text can be written as tokens
// of a JSON file. Printable Latin-1 characters stand for their number; the other bytes, in order, are U+0100 and the
// following characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rf::text {

constexpr char32_t kSpaceLetter = 0x120;  // of the byte 0x20

// Appends the bytes that the letters stand for; false, with nothing appended, if a character is not in the alphabet.
bool append_bytes(std::string_view letters, std::string& bytes);
std::string letters_of(std::string_view bytes);

}  // namespace rf::text
