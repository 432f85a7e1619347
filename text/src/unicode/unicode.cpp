// Unicode look-ups and canonical normalisation (UAX #15) over generated tables. Hangul syllables are composed and
// decomposed by arithmetic, so tables omit them.
#include "unicode/unicode.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "rf/io/utf8.h"

namespace rf::text {
namespace {

struct Lowering {
  char32_t from, to;
};
struct Decomposition {
  char32_t from;
  uint16_t offset, length;
};
struct Composition {
  char32_t first, second, composite;
};
#include "unicode/unicode_tables.inc"

// Hangul syllables compose and decompose by arithmetic (the Unicode Standard, section 3.12).
constexpr char32_t kSyllableBase = 0xAC00, kLeadBase = 0x1100, kVowelBase = 0x1161, kTrailBase = 0x11A7;
constexpr char32_t kLeads = 19, kVowels = 21, kTrails = 28;  // kTrails counts "no trailing consonant"
constexpr char32_t kSyllables = kLeads * kVowels * kTrails;

constexpr char32_t kCapitalSigma = 0x3A3, kSigma = 0x3C3, kFinalSigma = 0x3C2;
constexpr char32_t kCapitalDottedI = 0x130, kDotAbove = 0x307;

char32_t simple_lower(char32_t code) {
  const auto* found = std::lower_bound(std::begin(kLower), std::end(kLower), code,
                                       [](const Lowering& l, char32_t c) { return l.from < c; });
  return found->to;
}

// A capital sigma is final if the nearest letter before it, ignoring case-ignorable characters, is cased and the
// nearest one after it is not (Unicode standard, table 3-17, as CPython applies it).
bool is_final_sigma(const std::vector<MappedChar>& chars, size_t at) {
  const auto ignorable = [&chars](size_t i) { return (unicode_record(chars[i].code) & kIgnorable) != 0; };
  const auto cased = [&chars](size_t i) { return (unicode_record(chars[i].code) & kCased) != 0; };
  size_t before = at;
  while (before > 0 && ignorable(before - 1)) --before;
  if (before == 0 || !cased(before - 1)) return false;
  size_t after = at + 1;
  while (after < chars.size() && ignorable(after)) ++after;
  return after == chars.size() || !cased(after);
}

int class_of(const MappedChar& c) { return combining_class(unicode_record(c.code)); }

#include "unicode/nfc_tables.inc"

bool is_later_composite(char32_t code) {
  return std::ranges::find(kLaterComposites, code) != std::end(kLaterComposites);
}

// Canonical composition into `composed`: each character joins the last starter before it unless one of equal or higher
// class stands between them. join(starter, next) returns whether the two have a composite, which the starter becomes.
template <typename Char, typename Rank, typename Join>
void compose_into(std::vector<Char>& composed, const std::vector<Char>& chars, Rank rank_of, Join join) {
  composed.clear();
  constexpr size_t kNone = static_cast<size_t>(-1);
  size_t starter = kNone;
  int last_rank = -1;  // of the last character kept after the starter, initially -1
  for (const Char& c : chars) {
    const int rank = rank_of(c);
    if (starter != kNone && last_rank < rank && join(composed[starter], c)) continue;
    if (rank == 0) {
      starter = composed.size();
      last_rank = -1;
    } else {
      last_rank = rank;
    }
    composed.push_back(c);
  }
}

namespace regex {
#include "unicode/regex_tables.inc"
}
namespace normalizer {
#include "unicode/normalizer_tables.inc"
}

// The entry of a code point in a table of two levels, whose equal blocks are stored once.
template <int kBits, typename Index, typename Blocks>
auto look_up(const Index& index, const Blocks& blocks, char32_t code) {
  return blocks[static_cast<size_t>(index[code >> kBits]) << kBits | (code & ((1U << kBits) - 1))];
}

uint16_t regex_kind(char32_t code) {
  return regex::kKinds[look_up<regex::kBlockBits>(regex::kIndex, regex::kBlocks, code)];
}

}  // namespace

int nfc_class(char32_t code) {
  const int rank = combining_class(unicode_record(code));
  return rank == 0 || std::ranges::binary_search(kLaterMarks, code) ? 0 : rank;
}

uint8_t regex_classes(char32_t code) { return static_cast<uint8_t>(regex_kind(code)); }

uint8_t general_category(char32_t code) { return static_cast<uint8_t>(regex_kind(code) >> 8); }

uint32_t unicode_record(char32_t code) { return kRecords[look_up<kBlockBits>(kIndex, kBlocks, code)]; }

const BertCharacter& bert_character(char32_t code) {
  return normalizer::kRecords[look_up<normalizer::kBlockBits>(normalizer::kIndex, normalizer::kBlocks, code)];
}

std::u32string_view BertCharacter::decomposition() const { return {normalizer::kPool + pool, decomposition_length}; }

std::u32string_view BertCharacter::lower() const {
  return {normalizer::kPool + pool + decomposition_length, lower_length};
}

bool is_syllable(char32_t code) { return code >= kSyllableBase && code - kSyllableBase < kSyllables; }

Decomposed canonical_decomposition(char32_t code) {
  if (is_syllable(code)) {
    const char32_t index = code - kSyllableBase, trail = index % kTrails;
    return {{kLeadBase + index / (kVowels * kTrails), kVowelBase + index / kTrails % kVowels, kTrailBase + trail},
            trail == 0 ? size_t{2} : size_t{3}};
  }
  const auto* found = std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), code,
                                       [](const Decomposition& d, char32_t c) { return d.from < c; });
  Decomposed parts{{}, found->length};
  std::copy_n(kDecompositionPool + found->offset, found->length, parts.codes);
  return parts;
}

char32_t canonical_composite(char32_t first, char32_t second) {
  if (first - kLeadBase < kLeads && second - kVowelBase < kVowels) {
    return kSyllableBase + ((first - kLeadBase) * kVowels + (second - kVowelBase)) * kTrails;
  }
  if (is_syllable(first) && (first - kSyllableBase) % kTrails == 0 && second > kTrailBase &&
      second - kTrailBase < kTrails) {
    return first + (second - kTrailBase);
  }
  const auto* found = std::lower_bound(std::begin(kCompositions), std::end(kCompositions), std::pair(first, second),
                                       [](const Composition& c, const std::pair<char32_t, char32_t>& key) {
                                         return std::pair(c.first, c.second) < key;
                                       });
  const bool hit = found != std::end(kCompositions) && found->first == first && found->second == second;
  return hit ? found->composite : 0;
}

SourceSpan join(const SourceSpan& a, const SourceSpan& b) {
  return {std::min(a.byte_begin, b.byte_begin), std::max(a.byte_end, b.byte_end), std::min(a.char_begin, b.char_begin),
          std::max(a.char_end, b.char_end)};
}

SourceSpan Normalizer::part_span(const MappedChar& c, size_t i, size_t count) const {
  return static_cast<size_t>(c.parts) == count ? parts_[static_cast<size_t>(c.parts_begin) + i] : c.span;
}

void Normalizer::decompose(std::vector<MappedChar>& chars) {
  buffer_.clear();
  for (const MappedChar& c : chars) {
    if ((unicode_record(c.code) & kDecomposes) == 0) {
      buffer_.push_back(c);
      continue;
    }
    const Decomposed parts = canonical_decomposition(c.code);
    for (size_t i = 0; i < parts.count; ++i) buffer_.push_back({parts.codes[i], 0, 0, part_span(c, i, parts.count)});
  }
  chars.swap(buffer_);
  order_marks(chars, class_of);
}

void Normalizer::absorb(MappedChar& starter, const MappedChar& next, char32_t composite) {
  if (starter.parts == 0) {
    starter.parts_begin = static_cast<int32_t>(parts_.size());
    starter.parts = 1;
    parts_.push_back(starter.span);
  }
  parts_.push_back(next.span);  // nothing else was added since the starter's first part: only one starter is open
  ++starter.parts;
  starter.span = join(starter.span, next.span);
  starter.code = composite;
}

void Normalizer::nfc(std::vector<MappedChar>& chars) {
  decompose(chars);
  compose_into(buffer_, chars, class_of, [this](MappedChar& starter, const MappedChar& next) {
    const char32_t composite = canonical_composite(starter.code, next.code);
    if (composite != 0) absorb(starter, next, composite);
    return composite != 0;
  });
  chars.swap(buffer_);
}

void Normalizer::lower(std::vector<MappedChar>& chars) {
  buffer_.clear();
  for (size_t i = 0; i < chars.size(); ++i) {
    MappedChar c = chars[i];
    if ((unicode_record(c.code) & kHasLower) == 0) {
      buffer_.push_back(c);
    } else if (c.code == kCapitalDottedI) {
      buffer_.push_back({U'i', 0, 0, part_span(c, 0, 2)});
      buffer_.push_back({kDotAbove, 0, 0, part_span(c, 1, 2)});
    } else {
      c.code = c.code != kCapitalSigma ? simple_lower(c.code) : is_final_sigma(chars, i) ? kFinalSigma : kSigma;
      buffer_.push_back(c);
    }
  }
  chars.swap(buffer_);
}

void Normalizer::strip_accents(std::vector<MappedChar>& chars) {
  decompose(chars);
  std::erase_if(chars, [](const MappedChar& c) { return (unicode_record(c.code) & kMark) != 0; });
}

void append_decomposed(char32_t code, std::vector<CodeChange>& changes) {
  if ((unicode_record(code) & kDecomposes) == 0 || is_later_composite(code)) {
    changes.push_back({code, 0});
    return;
  }
  const Decomposed parts = canonical_decomposition(code);
  for (size_t i = 0; i < parts.count; ++i) changes.push_back({parts.codes[i], i == 0 ? 0 : 1});
}

void compose(std::vector<CodeChange>& changes) {
  std::vector<CodeChange> composed;
  const auto rank_of = [](const CodeChange& c) { return nfc_class(c.code); };
  compose_into(composed, changes, rank_of, [](CodeChange& starter, const CodeChange& next) {
    const char32_t composite = canonical_composite(starter.code, next.code);
    if (composite == 0 || is_later_composite(composite)) return false;
    starter = {composite, starter.added + next.added - 1};
    return true;
  });
  changes.swap(composed);
}

// Decomposes, orders marks, composes; then the changes are aligned with the source.
void to_nfc(std::vector<SourcedChar>& chars) {
  std::vector<CodeChange> changes;
  for (const SourcedChar& c : chars) append_decomposed(c.code, changes);
  order_marks(changes, [](const CodeChange& c) { return nfc_class(c.code); });
  compose(changes);
  apply_changes(changes, 0, chars);
}

std::string to_nfc(std::string_view text) {
  std::vector<SourcedChar> chars;
  while (!text.empty()) chars.push_back({take_utf8(text).code, {}});
  to_nfc(chars);
  std::string out;
  for (const SourcedChar& c : chars) append_utf8(c.code, out);
  return out;
}

}  // namespace rf::text
