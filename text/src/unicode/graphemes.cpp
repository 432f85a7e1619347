#include "unicode/graphemes.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "unicode/unicode.h"

namespace rf::text {
namespace {

struct ClassRange {
  char32_t first, last;
  uint8_t kind;
};
struct CodeRange {
  char32_t first, last;
};
struct CompatibleRun {
  char32_t first;
  uint16_t count;
  uint8_t parts;
};

#include "unicode/sentence_tables.inc"

// The tables by code point, expanded once.
class Tables {
 public:
  static const Tables& get() {
    static const Tables tables;
    return tables;
  }
  uint8_t record(char32_t code) const { return records_[index_[code >> kBits] << kBits | (code & (kBlock - 1))]; }
  std::u32string_view decomposition(char32_t code) const {
    const auto found = std::ranges::lower_bound(compatible_, code, {}, &Compatible::code);
    if (found == compatible_.end() || found->code != code) return {};
    return std::u32string_view(pool_).substr(found->begin, found->length);
  }
  static constexpr uint8_t kMarkBit = 16;

 private:
  struct Compatible {
    char32_t code;
    uint32_t begin, length;
  };
  static constexpr int kBits = 8;
  static constexpr size_t kBlock = size_t{1} << kBits, kCodes = 0x110000;

  Tables() {
    const auto at = [this](char32_t code) -> uint8_t& {
      uint16_t& block = index_[code >> kBits];
      if (block == 0) {
        block = static_cast<uint16_t>(records_.size() >> kBits);
        records_.resize(records_.size() + kBlock);
      }
      return records_[static_cast<size_t>(block) << kBits | (code & (kBlock - 1))];
    };
    for (const ClassRange& range : kGraphemeClasses) {
      for (char32_t code = range.first; code <= range.last; ++code) at(code) = range.kind;
    }
    for (const CodeRange& range : kCombiningMarks) {
      for (char32_t code = range.first; code <= range.last; ++code) at(code) |= kMarkBit;
    }
    size_t from = 0;  // of the pool
    for (const CompatibleRun& run : kCompatible) {
      const size_t parts = std::max<size_t>(run.parts, 1);
      for (uint32_t i = 0; i < run.count; ++i) {
        compatible_.push_back({run.first + i, static_cast<uint32_t>(pool_.size()), static_cast<uint32_t>(parts)});
        for (size_t part = 0; part < parts; ++part) {
          pool_.push_back(kCompatiblePool[from + part] + (run.parts == 0 ? i : 0));
        }
        if (run.parts > 0) from += parts;
      }
      if (run.parts == 0) ++from;
    }
  }

  std::array<uint16_t, (kCodes >> kBits)> index_{};
  std::vector<uint8_t> records_ = std::vector<uint8_t>(kBlock);
  std::vector<Compatible> compatible_;
  std::u32string pool_;
};

using enum GraphemeClass;

bool joins_syllable(GraphemeClass last, GraphemeClass next) {
  if (last == kLead) return next == kLead || next == kVowel || next == kLeadVowel || next == kLeadVowelTrail;
  if (last == kLeadVowel || last == kVowel) return next == kVowel || next == kTrail;
  return (last == kLeadVowelTrail || last == kTrail) && next == kTrail;
}

}  // namespace

GraphemeClass grapheme_class(char32_t code) {
  if (is_syllable(code)) return canonical_decomposition(code).count == 2 ? kLeadVowel : kLeadVowelTrail;
  return static_cast<GraphemeClass>(Tables::get().record(code) & (Tables::kMarkBit - 1));
}

bool is_combining_mark(char32_t code) { return (Tables::get().record(code) & Tables::kMarkBit) != 0; }

std::u32string_view compatibility_decomposition(char32_t code) { return Tables::get().decomposition(code); }

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
  constexpr char32_t kNonJoiner = 0x200C;
  if (!extends || code == kNonJoiner) consonant_ = next == kConsonant;
  if (!extends) {
    pictograph_ = next == kPictograph;
    linked_ = false;
  }
  if (next == kLinker) linked_ = true;
  last_ = next;
  code_ = code;
  return joined;
}

}  // namespace rf::text
