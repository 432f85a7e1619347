// A character that does not change is written to the output immediately. Characters that decompose or combine are kept
// as parts until a starter (combining class 0) ends the stretch for canonical reordering.
#include "splitters/bert_normalizer.h"

#include <algorithm>

#include "rf/io/utf8.h"

namespace rf::text {

void write_utf8(std::span<const NormalizedChar> chars, std::string& text, std::vector<SourceSpan>& spans) {
  text.clear();
  spans.clear();
  for (const NormalizedChar& c : chars) {
    append_utf8(c.code, text);
    spans.resize(text.size(), c.source());
  }
}

BertNormalizer::BertNormalizer(Case letter_case, bool strip_accents)
    : lower_case_(letter_case == Case::kLower),
      strip_accents_(strip_accents),
      changing_(BertCharacter::kDrop | BertCharacter::kSpace) {
  if (lower_case_) changing_ |= BertCharacter::kLowers;
  if (strip_accents) changing_ |= BertCharacter::kMark | BertCharacter::kDecomposes | BertCharacter::kCombines;
}

int64_t BertNormalizer::normalize(std::string_view text, SourcePlace& place, std::vector<NormalizedChar>& out) {
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

// A place before a character that canonical reordering does not move, and that is not dropped between two that it may.
size_t BertNormalizer::stretch_end(std::string_view text, size_t bytes) {
  size_t at = bytes;
  while (at < text.size() && !begins_character(text[at])) ++at;
  while (at < text.size()) {
    const Decoded decoded = decode_utf8(text.substr(at));
    if (!bert_character(decoded.code).has(BertCharacter::kCombines | BertCharacter::kDrop)) return at;
    at += static_cast<size_t>(decoded.length);
  }
  return text.size();
}

void BertNormalizer::decompose(char32_t code, const BertCharacter& character) {
  if (is_syllable(code)) {
    const char32_t index = code - kSyllableBase, trail = index % kTrails;
    add_part(kLeadBase + index / (kVowels * kTrails), false);
    add_part(kVowelBase + index / kTrails % kVowels, true);
    if (trail != 0) add_part(kTrailBase + trail, true);
  } else if (character.has(BertCharacter::kDecomposes)) {
    const std::u32string_view codes = character.decomposition();
    for (size_t i = 0; i < codes.size(); ++i) add_part(codes[i], i > 0);
  } else {
    add_part(code, false);
  }
}

void BertNormalizer::add_part(char32_t code, bool inserted) {
  parts_.push_back({code, bert_character(code).combining_class, inserted});
}

// Reorders the waiting parts and writes all except marks. Sources are assigned to the parts in their new order: each
// part that is not inserted takes the next source, an inserted part shares the source of the previous part.
void BertNormalizer::flush(std::vector<NormalizedChar>& out) {
  if (parts_.empty()) return;
  const auto is_starter = [](const Part& part) { return part.combining_class == 0; };
  for (auto begin = parts_.begin(); begin != parts_.end();) {
    const auto end = std::find_if(begin + 1, parts_.end(), is_starter);
    std::stable_sort(begin, end, [](const Part& a, const Part& b) { return a.combining_class < b.combining_class; });
    begin = end;
  }
  size_t taken = 0;
  for (const Part& part : parts_) {
    if (!part.inserted) ++taken;
    if (!bert_character(part.code).has(BertCharacter::kMark)) put_lower(part.code, sources_[taken - 1], out);
  }
  parts_.clear();
  sources_.clear();
}

void BertNormalizer::put_lower(char32_t code, const NormalizedChar& source, std::vector<NormalizedChar>& out) const {
  const BertCharacter& entry = bert_character(code);
  if (lower_case_ && entry.has(BertCharacter::kLowers)) {
    for (const char32_t lower : entry.lower())
      out.push_back({lower, source.byte_begin, source.byte_end, source.character});
  } else {
    out.push_back({code, source.byte_begin, source.byte_end, source.character});
  }
}

}  // namespace rf::text
