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

// Holds buffers: use one object per thread.
class NfcNormalizer {
 public:
  void normalize(std::vector<SourcedChar>& chars);  // in place

 private:
  // A character and its change to the source: it adds one (1), replaces one (0), or replaces more than one (negative).
  struct Change {
    char32_t code;
    int32_t added;
  };
  void decompose(const std::vector<SourcedChar>& chars);
  void compose();

  std::vector<Change> changes_, composed_;
  std::vector<SourcedChar> out_;
};

std::string to_nfc(std::string_view text);

}  // namespace rf::text
