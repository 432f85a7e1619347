// The Unicode properties that the BERT tokenizer needs (spec R-TOK-05, table set B: Python's unicodedata and
// str.lower), and the three normalisations of its pipeline over code points with their sources. Not included:
// compatibility forms (NFKC), title case, collation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rf::text {

enum UnicodeFlag : uint32_t {
  kDrop = 1 << 0,         // general category C* (also unassigned and private use) and U+FFFD, except \t \n \r
  kSpace = 1 << 1,        // separates words: \t \n \r, Zs, Zl, Zp
  kPunctuation = 1 << 2,  // category P* and every ASCII symbol
  kMark = 1 << 3,         // category Mn, which "strip accents" removes
  kCased = 1 << 4,        // used by the final-sigma rule, like the next
  kIgnorable = 1 << 5,
  kNfcUnstable = 1 << 6,  // may change, compose or be reordered under NFC
  kHasLower = 1 << 7,
  kDecomposes = 1 << 8,  // has a canonical decomposition
  kCjk = 1 << 9,         // the ranges that BERT puts spaces around
};

// Flags of UnicodeFlag in the low 16 bits, canonical combining class above; code < 0x110000.
uint32_t unicode_record(char32_t code);
inline int combining_class(uint32_t record) { return static_cast<int>(record >> 16); }

// The full canonical decomposition (NFD) of a code point with kDecomposes.
struct Decomposed {
  char32_t codes[4];
  size_t count;
};
Decomposed canonical_decomposition(char32_t code);
// The primary composite of two code points; 0 if they do not compose.
char32_t canonical_composite(char32_t first, char32_t second);

// A half-open range of the source text, in bytes and in code points.
struct SourceSpan {
  int32_t byte_begin, byte_end, char_begin, char_end;
};
SourceSpan join(const SourceSpan& a, const SourceSpan& b);

// A code point with its source. NFC composes several to one; `parts` stores their sources, so that decomposing the
// composite again restores the source of each.
struct MappedChar {
  char32_t code;
  int32_t parts_begin, parts;  // into the normalizer's list; 0 parts when not composed
  SourceSpan span;
};

// Works in place on the code points of one word. Holds buffers: use one object per thread.
class Normalizer {
 public:
  void nfc(std::vector<MappedChar>& chars);
  void lower(std::vector<MappedChar>& chars);          // str.lower, with U+0130 and the final sigma
  void strip_accents(std::vector<MappedChar>& chars);  // NFD, then category Mn removed
  void clear_parts() { parts_.clear(); }               // before the next word

 private:
  void decompose(std::vector<MappedChar>& chars);
  void compose(std::vector<MappedChar>& chars);
  // The source of the i-th of the `count` code points that c decomposes into.
  SourceSpan part_span(const MappedChar& c, size_t i, size_t count) const;
  void absorb(MappedChar& starter, const MappedChar& next, char32_t composite);

  std::vector<MappedChar> buffer_;
  std::vector<SourceSpan> parts_;
};

}  // namespace rf::text
