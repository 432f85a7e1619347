// The BertNormalizer of the library `tokenizers` without its spaces around CJK characters: clean; NFD without marks
// ("strip accents"); lower case, code point by code point. The result is code points with their sources in the text,
// aligned like in that library: if a character becomes several, each has the whole source; a mark that canonical
// reordering moves has the source of the character whose place it takes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rf/text/tokenizer.h"
#include "unicode/unicode.h"

namespace rf::text {

// Text is normalised in stretches of at least this size, whose buffers fit into the second-level cache.
inline constexpr size_t kStretchBytes = size_t{1} << 14;

struct NormalizedChar {
  char32_t code;
  int32_t byte_begin, byte_end;  // its source character in the text before normalisation
  int32_t character;

  SourceSpan source() const { return {byte_begin, byte_end, character, character + 1}; }
};

// The characters as UTF-8, and the source of each byte of it.
void write_utf8(std::span<const NormalizedChar> chars, std::string& text, std::vector<SourceSpan>& spans);

struct SourcePlace {
  int32_t byte, character;
};

// Holds buffers: use one object per thread.
class BertNormalizer {
 public:
  BertNormalizer(Case letter_case, bool strip_accents);

  // Whether a character is unchanged in any context. The text before such a character and the text after it are
  // normalised independently.
  bool keeps(const BertCharacter& character) const { return !character.has(changing_); }

  // Appends the text, which begins at that place of the source, and moves the place to its end. Ill-formed UTF-8
  // becomes U+FFFD and is dropped. Returns the number of such sequences.
  int64_t normalize(std::string_view text, SourcePlace& place, std::vector<NormalizedChar>& out);
  // The first place at or after `bytes` where a text may be divided and its parts be normalised separately with the
  // same result.
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
  int changing_;  // flags of the characters that may change
  std::vector<Part> parts_;
  std::vector<NormalizedChar> sources_;  // of the parts that are not inserted
};

}  // namespace rf::text
