// The treatment of each code point by BertNormalizer and BertPreTokenizer of the library `tokenizers` (spec R-TOK-05,
// table set A). The tables are generated from that library's results (scripts/make_normalizer_tables.py); its Unicode
// versions are older than table set B's and differ from step to step, so all properties come from these results.
#pragma once

#include <cstdint>
#include <string_view>

namespace rf::text {

struct BertCharacter {
  enum Flag : uint8_t {
    kDrop = 1 << 0,         // cleaning removes it; no other flag is set
    kSpace = 1 << 1,        // cleaning makes it a space; no other flag is set
    kPunctuation = 1 << 2,  // a separate word
    kMark = 1 << 3,         // stripping accents removes it
    kCjk = 1 << 4,          // spaces are put around it
    kLowers = 1 << 5,       // has a lower case
    kDecomposes = 1 << 6,   // has a canonical decomposition, which stripping accents leaves it in
    kCombines = 1 << 7,     // has, or its first part has, a canonical combining class other than 0
  };
  uint8_t flags;
  uint8_t combining_class;  // of the character, or of the first part of its decomposition
  uint8_t decomposition_length, lower_length;
  uint16_t pool;  // index of the decomposition, which the lower case follows

  bool has(int any_of) const { return (flags & any_of) != 0; }
  std::u32string_view lower() const;  // empty if it does not change
  // Also empty for Hangul syllables, which are decomposed by arithmetic.
  std::u32string_view decomposition() const;
};

const BertCharacter& bert_character(char32_t code);  // code < 0x110000

}  // namespace rf::text
