// Extended grapheme clusters (UAX #29) without pairs of regional indicators, and compatibility decompositions.
#pragma once

#include <cstdint>
#include <string_view>

namespace rf::text {

enum class GraphemeClass : uint8_t {
  kOther,
  kControl,
  kExtend,
  kLinker,
  kJoiner,
  kSpacingMark,
  kPrepend,
  kLead,
  kVowel,
  kTrail,
  kLeadVowel,
  kLeadVowelTrail,
  kConsonant,
  kPictograph
};

GraphemeClass grapheme_class(char32_t code);
// Category M*, as the normalizer StripAccents of `tokenizers` removes it.
bool is_combining_mark(char32_t code);
// The full compatibility decomposition (NFKD); empty if it is the canonical one.
std::u32string_view compatibility_decomposition(char32_t code);

// Decides for each character in turn whether it continues the cluster.
class GraphemeState {
 public:
  bool continues(char32_t code);  // false for the first character
 private:
  GraphemeClass last_ = GraphemeClass::kControl;
  char32_t code_ = 0;
  // The end of the cluster so far: a consonant and its extensions; a linker among these extensions; a pictograph and
  // its extensions.
  bool consonant_ = false, linked_ = false, pictograph_ = false;
};

}  // namespace rf::text
