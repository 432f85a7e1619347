// Character classes as the regular expressions inside the library `tokenizers` see them (probed on every code point by
// scripts/make_regex_tables.py): the classes of GPT-2's splitting expression, and the classes that decide where an
// added token with "single_word", "lstrip" or "rstrip" begins and ends.
#pragma once

#include <cstdint>

namespace rf::text {

enum RegexClass : uint8_t {
  kLetterClass = 1 << 0,      // \p{L}
  kNumberClass = 1 << 1,      // \p{N}
  kWhiteSpaceClass = 1 << 2,  // \s
  kWordClass = 1 << 3,        // \w
};

// Flags of RegexClass; code < 0x110000.
uint8_t regex_classes(char32_t code);

}  // namespace rf::text
