// Properties of code points as in Python's unicodedata and str.lower (spec R-TOK-05, table set B), with the three
// normalisations of BERT's tokenizer over code points with their sources; and properties and normalisations as in the
// library `tokenizers`. Not included: title case, collation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
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
bool is_syllable(char32_t code);  // of Hangul
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
  // The source of the i-th of the `count` code points that c decomposes into.
  SourceSpan part_span(const MappedChar& c, size_t i, size_t count) const;
  void absorb(MappedChar& starter, const MappedChar& next, char32_t composite);

  std::vector<MappedChar> buffer_;
  std::vector<SourceSpan> parts_;
};

// A code point and its source for the NFC of the library `tokenizers`: an older Unicode version than the tables of this
// file (nfc_tables.inc has the differences), and an alignment that counts characters from left to right. The source of
// a composite is the source of its first character; a character that canonical reordering moves takes the source of the
// character whose place it takes.
struct SourcedChar {
  char32_t code;
  SourceSpan source;
};

// Whether NFC may change a text that contains this character.
inline bool may_change_under_nfc(char32_t code) { return (unicode_record(code) & kNfcUnstable) != 0; }

// The canonical combining class in that version.
int nfc_class(char32_t code);
// A character of a normalised text, and its change to the source: it adds one (1), replaces one (0), or replaces one
// and as many after it (negative).
struct CodeChange {
  char32_t code;
  int32_t added;
};
void append_decomposed(char32_t code, std::vector<CodeChange>& changes);  // canonically, in that version
// Applies changes of the characters from `first` on. One that is added has the source of the character before it.
template <typename Char>
void apply_changes(const std::vector<CodeChange>& changes, size_t first, std::vector<Char>& chars) {
  std::vector<Char> out;
  out.reserve(first + changes.size());
  out.assign(chars.begin(), chars.begin() + static_cast<ptrdiff_t>(first));
  size_t at = first;
  for (const CodeChange& c : changes) {
    if (c.added > 0) {
      out.push_back(at == 0 ? Char{} : chars[at - 1]);
    } else {
      out.push_back(chars[at]);
      at += static_cast<size_t>(1 - c.added);
    }
    out.back().code = c.code;
  }
  chars.swap(out);
}
void compose(std::vector<CodeChange>& changes);  // canonically, characters whose marks are in order
void to_nfc(std::vector<SourcedChar>& chars);
std::string to_nfc(std::string_view text);

// Canonical ordering: sorts each run of characters with a combining class (rank) other than 0 by it, stably.
template <typename Char, typename Rank>
void order_marks(std::vector<Char>& chars, Rank rank) {
  const auto is_starter = [rank](const Char& c) { return rank(c) == 0; };
  for (auto begin = chars.begin(); begin != chars.end();) {
    begin = std::find_if_not(begin, chars.end(), is_starter);
    const auto end = std::find_if(begin, chars.end(), is_starter);
    std::stable_sort(begin, end, [rank](const Char& a, const Char& b) { return rank(a) < rank(b); });
    begin = end;
  }
}

// Character classes as the regular expressions inside the library `tokenizers` see them (probed on every code point by
// scripts/make_regex_tables.py): the classes of GPT-2's splitting expression, and the classes that decide where an
// added token with "single_word", "lstrip" or "rstrip" begins and ends.
enum RegexClass : uint8_t {
  kLetterClass = 1 << 0,      // \p{L}
  kNumberClass = 1 << 1,      // \p{N}
  kWhiteSpaceClass = 1 << 2,  // \s
  kWordClass = 1 << 3,        // \w
  kDigitClass = 1 << 4,       // the pre-tokenizer Digits, whose Unicode version is later than \p{N}'s
};

// Flags of RegexClass; code < 0x110000.
uint8_t regex_classes(char32_t code);
inline bool is_white_space(char32_t code) {
  constexpr char32_t kDelete = 0x7F;
  return (code <= U' ' || code >= kDelete) && (regex_classes(code) & kWhiteSpaceClass) != 0;
}

// General categories, in the order of general_category(); \p{L} is all that begin with L.
inline constexpr std::string_view kCategories[] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                                   "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                                   "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};
uint8_t general_category(char32_t code);  // an index of kCategories, as those expressions see it

// The treatment of each code point by BertNormalizer and BertPreTokenizer of the library `tokenizers` (spec R-TOK-05,
// table set A). The tables are generated from that library's results (scripts/make_normalizer_tables.py); its Unicode
// versions are older than table set B's and differ from step to step, so all properties come from these results.
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
