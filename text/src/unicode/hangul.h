// Hangul syllables compose and decompose by arithmetic (the Unicode Standard, section 3.12).
#pragma once

namespace rf::text {

constexpr char32_t kSyllableBase = 0xAC00, kLeadBase = 0x1100, kVowelBase = 0x1161, kTrailBase = 0x11A7;
constexpr char32_t kLeads = 19, kVowels = 21, kTrails = 28;  // kTrails counts "no trailing consonant"
constexpr char32_t kSyllables = kLeads * kVowels * kTrails;

constexpr bool is_syllable(char32_t code) { return code >= kSyllableBase && code - kSyllableBase < kSyllables; }

}  // namespace rf::text
