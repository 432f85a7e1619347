// Canonical composition (NFC) as in the library `tokenizers`: an older Unicode version than the tables of unicode.h
// (nfc_tables.inc has the differences), and an alignment that counts characters from left to right. The source of a
// composite is the source of its first character; a character that canonical reordering moves takes the source of the
// character whose place it takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "unicode/unicode.h"

namespace rf::text {

struct SourcedChar {
  char32_t code;
  SourceSpan source;
};

// Whether NFC may change a text that contains this character.
inline bool may_change_under_nfc(char32_t code) { return (unicode_record(code) & kNfcUnstable) != 0; }

void to_nfc(std::vector<SourcedChar>& chars);
std::string to_nfc(std::string_view text);

}  // namespace rf::text
