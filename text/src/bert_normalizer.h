// The BertNormalizer of the library `tokenizers` without its spaces around CJK characters: clean; NFD without marks
// ("strip accents"); lower case, code point by code point. Gives code points that know where in the text they come
// from, with that library's alignment: of a character that became several, each has the whole source; a mark that
// canonical reordering moves has the source of the character whose place it took.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bert_characters.h"
#include "unicode.h"

namespace rf::text {

struct NormalizedChar {
  char32_t code;
  int32_t byte_begin, byte_end;  // of the one source character it comes from, in the text normalised
  int32_t character;

  SourceSpan source() const { return {byte_begin, byte_end, character, character + 1}; }
};

// The characters as UTF-8, and the source of each byte of it.
void write_utf8(std::span<const NormalizedChar> chars, std::string& text, std::vector<SourceSpan>& spans);

struct SourcePlace {
  int32_t byte, character;
};

// Holds buffers: one object a thread.
class BertNormalizer {
 public:
  BertNormalizer(bool lower_case, bool strip_accents);

  // Whether a character is passed through as it is, wherever it stands. What stands before such a character and what
  // stands behind it do not see each other.
  bool keeps(const BertCharacter& character) const { return !character.has(changing_); }

  // Appends the text, whose front is at that place of the source, and moves the place behind it. Ill-formed UTF-8
  // becomes U+FFFD and is dropped with it. Returns how many such sequences there were.
  int64_t normalize(std::string_view text, SourcePlace& place, std::vector<NormalizedChar>& out);
  // Where a text may be parted, at `bytes` or behind, and its parts be normalised one by one with the same result.
  static size_t stretch_end(std::string_view text, size_t bytes);

 private:
  struct Part {
    char32_t code;
    uint8_t combining_class;
    bool inserted;  // not the first part of its source character
  };
  void decompose(char32_t code, const BertCharacter& character);
  void add_part(char32_t code, bool inserted);
  void flush(std::vector<NormalizedChar>& out);
  void put_lower(char32_t code, const NormalizedChar& source, std::vector<NormalizedChar>& out) const;

  bool lower_case_, strip_accents_;
  int changing_;  // flags of the characters that may not be passed through
  std::vector<Part> parts_;
  std::vector<NormalizedChar> sources_;  // of the parts that are not inserted
};

}  // namespace rf::text
