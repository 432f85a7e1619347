// GPT-2's splitting expression, without a regex engine (unicode.h defines the classes):
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Every character belongs to one word.
// The first character (the first two, if there is a space) decides which alternative matches; the word then ends with
// the run of characters of its class.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rf/io/utf8.h"
#include "unicode/unicode.h"

namespace rf::text {

struct Gpt2Word {
  size_t end;
  bool ascii;
};

inline constexpr uint8_t kSplittingClasses =
    kLetterClass | kNumberClass | kWhiteSpaceClass;  // otherwise: the "other" class

constexpr std::array<uint8_t, 128> make_gpt2_classes() {
  std::array<uint8_t, 128> classes{};
  for (size_t c = 0; c < classes.size(); ++c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) classes[c] = kLetterClass;
    if (c >= '0' && c <= '9') classes[c] = kNumberClass;
    if (c == ' ' || (c >= '\t' && c <= '\r')) classes[c] = kWhiteSpaceClass;
  }
  return classes;
}
inline constexpr std::array<uint8_t, 128> kGpt2Classes = make_gpt2_classes();

struct Classified {
  uint8_t classes;
  uint8_t length;  // bytes
};

inline Classified classify(std::string_view text, size_t at) {
  const auto first = static_cast<uint8_t>(text[at]);
  if (first < 0x80) return {kGpt2Classes[first], 1};
  const Decoded decoded = decode_utf8(text.substr(at));
  return {static_cast<uint8_t>(regex_classes(decoded.code) & kSplittingClasses), static_cast<uint8_t>(decoded.length)};
}

// Bytes of the contraction that begins with the apostrophe at `at`; 0 without one.
inline size_t contraction(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at + 1, 2);
  if (rest.empty()) return 0;
  if (rest[0] == 's' || rest[0] == 't' || rest[0] == 'm' || rest[0] == 'd') return 2;
  return rest == "re" || rest == "ve" || rest == "ll" ? 3 : 0;
}

// The last character of white space belongs to the next word, unless it is the only one or nothing follows.
inline Gpt2Word white_space(std::string_view text, size_t begin) {
  size_t last = begin, end = begin;
  bool ascii = true;
  while (end < text.size()) {
    const Classified c = classify(text, end);
    if (c.classes != kWhiteSpaceClass) break;
    last = end;
    end += c.length;
  }
  if (end < text.size() && last > begin) end = last;
  for (size_t i = begin; i < end; ++i) ascii = ascii && static_cast<uint8_t>(text[i]) < 0x80;
  return {end, ascii};
}

// The word that begins at `begin`; text is valid UTF-8, begin < text.size().
inline Gpt2Word next_gpt2_word(std::string_view text, size_t begin) {
  size_t at = begin;
  if (text[at] == '\'') {
    if (const size_t length = contraction(text, at); length != 0) return {at + length, true};
  }
  if (text[at] == ' ' && at + 1 < text.size()) ++at;
  const Classified first = classify(text, at);
  if (first.classes == kWhiteSpaceClass) return white_space(text, begin);
  bool ascii = first.length == 1;
  at += first.length;
  while (at < text.size()) {
    const Classified next = classify(text, at);
    if (next.classes != first.classes) break;
    ascii = ascii && next.length == 1;
    at += next.length;
  }
  return {at, ascii};
}

}  // namespace rf::text
