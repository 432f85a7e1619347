#include "unicode/graphemes.h"

#include <algorithm>
#include <iterator>

#include "unicode/unicode.h"

namespace rf::text {
namespace {

struct Compatible {
  char32_t from;
  uint16_t offset, length;
};

namespace sentence {
#include "unicode/sentence_tables.inc"

constexpr uint8_t kMarkBit = 16;

uint8_t record(char32_t code) {
  return kBlocks[static_cast<size_t>(kIndex[code >> kBlockBits]) << kBlockBits | (code & ((1U << kBlockBits) - 1))];
}
}  // namespace sentence

using enum GraphemeClass;

bool joins_syllable(GraphemeClass last, GraphemeClass next) {
  if (last == kLead) return next == kLead || next == kVowel || next == kLeadVowel || next == kLeadVowelTrail;
  if (last == kLeadVowel || last == kVowel) return next == kVowel || next == kTrail;
  return (last == kLeadVowelTrail || last == kTrail) && next == kTrail;
}

}  // namespace

GraphemeClass grapheme_class(char32_t code) {
  return static_cast<GraphemeClass>(sentence::record(code) & (sentence::kMarkBit - 1));
}

bool is_combining_mark(char32_t code) { return (sentence::record(code) & sentence::kMarkBit) != 0; }

std::u32string_view compatibility_decomposition(char32_t code) {
  const auto* found = std::lower_bound(std::begin(sentence::kCompatible), std::end(sentence::kCompatible), code,
                                       [](const Compatible& c, char32_t wanted) { return c.from < wanted; });
  if (found == std::end(sentence::kCompatible) || found->from != code) return {};
  return {sentence::kCompatiblePool + found->offset, found->length};
}

bool GraphemeState::continues(char32_t code) {
  const GraphemeClass next = grapheme_class(code), last = last_;
  const bool extends = next == kExtend || next == kLinker || next == kJoiner;
  bool joined = false;
  if (last == kControl || next == kControl) {
    joined = code_ == U'\r' && code == U'\n';
  } else {
    joined = extends || next == kSpacingMark || last == kPrepend || joins_syllable(last, next) ||
             (next == kConsonant && consonant_ && linked_) || (next == kPictograph && pictograph_ && last == kJoiner);
  }
  if (!extends) {
    consonant_ = next == kConsonant;
    pictograph_ = next == kPictograph;
    linked_ = false;
  }
  if (next == kLinker) linked_ = true;
  last_ = next;
  code_ = code;
  return joined;
}

}  // namespace rf::text
