// The classes of ASCII bytes that the splitters use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rf::text {

// kLetter: a digit or a small letter. kNot: part of a character that is not ASCII.
enum class Ascii : uint8_t { kLetter, kCapital, kPunctuation, kSpace, kControl, kNot };

constexpr std::array<Ascii, 256> make_ascii_classes() {
  std::array<Ascii, 256> classes{};
  for (int c = 0; c < 256; ++c) {
    const bool letter = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');
    const bool space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    classes[static_cast<size_t>(c)] = c >= 0x80              ? Ascii::kNot
                                      : letter               ? Ascii::kLetter
                                      : c >= 'A' && c <= 'Z' ? Ascii::kCapital
                                      : space                ? Ascii::kSpace
                                      : c < ' ' || c == 0x7F ? Ascii::kControl
                                                             : Ascii::kPunctuation;
  }
  return classes;
}
inline constexpr std::array<Ascii, 256> kAsciiClasses = make_ascii_classes();

inline Ascii ascii_class(char c) { return kAsciiClasses[static_cast<uint8_t>(c)]; }

inline char to_lower(char c) { return ascii_class(c) == Ascii::kCapital ? static_cast<char>(c + ('a' - 'A')) : c; }

inline bool is_ascii_word(char c) { return ascii_class(c) <= Ascii::kCapital; }

}  // namespace rf::text
