// The BertNormalizer of the library `tokenizers` without its spaces around CJK characters: clean; NFD without marks
// ("strip accents"); lower case, code point by code point. The result is code points with their sources in the text,
// aligned like in that library: if a character becomes several, each has the whole source; a mark that canonical
// reordering moves has the source of the character whose place it takes.
//
// A character that does not change is written to the output immediately. Characters that decompose or combine are kept
// as parts until a starter (combining class 0) ends the stretch for canonical reordering.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rf/io/utf8.h"
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
inline void write_utf8(std::span<const NormalizedChar> chars, std::string& text, std::vector<SourceSpan>& spans) {
  text.clear();
  spans.clear();
  for (const NormalizedChar& c : chars) {
    append_utf8(c.code, text);
    spans.resize(text.size(), c.source());
  }
}

struct SourcePlace {
  int32_t byte, character;
};

// Holds buffers: use one object per thread.
class BertNormalizer {
 public:
  BertNormalizer(Case letter_case, bool strip_accents)
      : lower_case_(letter_case == Case::kLower),
        strip_accents_(strip_accents),
        changing_(BertCharacter::kDrop | BertCharacter::kSpace) {
    if (lower_case_) changing_ |= BertCharacter::kLowers;
    if (strip_accents) changing_ |= BertCharacter::kMark | BertCharacter::kDecomposes | BertCharacter::kCombines;
  }

  // Whether a character is unchanged in any context. The text before such a character and the text after it are
  // normalised independently.
  bool keeps(const BertCharacter& character) const { return !character.has(changing_); }

  // Appends the text, which begins at that place of the source, and moves the place to its end. Ill-formed UTF-8
  // becomes U+FFFD and is dropped. Returns the number of such sequences.
  int64_t normalize(std::string_view text, SourcePlace& place, std::vector<NormalizedChar>& out) {
    int64_t replaced = 0;
    constexpr int kWaits = BertCharacter::kDecomposes | BertCharacter::kCombines;
    for (size_t at = 0; at < text.size();) {
      const Decoded decoded = decode_utf8(text.substr(at));
      const BertCharacter& entry = bert_character(decoded.code);
      const NormalizedChar source{decoded.code, place.byte, place.byte + decoded.length, place.character};
      at += static_cast<size_t>(decoded.length);
      place = {source.byte_end, place.character + 1};
      if (!decoded.valid) ++replaced;
      if (keeps(entry) && parts_.empty()) {
        out.push_back(source);
        continue;
      }
      if (entry.has(BertCharacter::kDrop)) continue;
      if (strip_accents_ && entry.has(kWaits)) {
        if (!entry.has(BertCharacter::kCombines)) flush(out);
        sources_.push_back(source);
        decompose(decoded.code, entry);
        continue;
      }
      flush(out);
      if (entry.has(BertCharacter::kSpace)) {
        out.push_back({U' ', source.byte_begin, source.byte_end, source.character});
      } else if (!strip_accents_ || !entry.has(BertCharacter::kMark)) {
        put_lower(decoded.code, source, out);
      }
    }
    flush(out);
    return replaced;
  }
  // The first place at or after `bytes` where a text may be divided and its parts be normalised separately with the
  // same result: before a character that canonical reordering does not move, and that is not dropped between two that
  // it may.
  static size_t stretch_end(std::string_view text, size_t bytes) {
    size_t at = bytes;
    while (at < text.size() && !begins_character(text[at])) ++at;
    while (at < text.size()) {
      const Decoded decoded = decode_utf8(text.substr(at));
      if (!bert_character(decoded.code).has(BertCharacter::kCombines | BertCharacter::kDrop)) return at;
      at += static_cast<size_t>(decoded.length);
    }
    return text.size();
  }

 private:
  struct Part {
    char32_t code;
    uint8_t combining_class;
    bool inserted;  // not the first part of its source character
  };
  void decompose(char32_t code, const BertCharacter& character) {
    if (is_syllable(code)) {
      const Decomposed parts = canonical_decomposition(code);
      for (size_t i = 0; i < parts.count; ++i) add_part(parts.codes[i], i > 0);
    } else if (character.has(BertCharacter::kDecomposes)) {
      const std::u32string_view codes = character.decomposition();
      for (size_t i = 0; i < codes.size(); ++i) add_part(codes[i], i > 0);
    } else {
      add_part(code, false);
    }
  }
  void add_part(char32_t code, bool inserted) {
    parts_.push_back({code, bert_character(code).combining_class, inserted});
  }
  // Reorders the waiting parts and writes all except marks. Sources are assigned to the parts in their new order: each
  // part that is not inserted takes the next source, an inserted part shares the source of the previous part.
  void flush(std::vector<NormalizedChar>& out) {
    if (parts_.empty()) return;
    order_marks(parts_, [](const Part& part) { return part.combining_class; });
    size_t taken = 0;
    for (const Part& part : parts_) {
      if (!part.inserted) ++taken;
      if (!bert_character(part.code).has(BertCharacter::kMark)) put_lower(part.code, sources_[taken - 1], out);
    }
    parts_.clear();
    sources_.clear();
  }
  void put_lower(char32_t code, const NormalizedChar& source, std::vector<NormalizedChar>& out) const {
    const BertCharacter& entry = bert_character(code);
    if (lower_case_ && entry.has(BertCharacter::kLowers)) {
      for (const char32_t lower : entry.lower())
        out.push_back({lower, source.byte_begin, source.byte_end, source.character});
    } else {
      out.push_back({code, source.byte_begin, source.byte_end, source.character});
    }
  }

  bool lower_case_, strip_accents_;
  int changing_;  // flags of the characters that may change
  std::vector<Part> parts_;
  std::vector<NormalizedChar> sources_;  // of the parts that are not inserted
};

}  // namespace rf::text
