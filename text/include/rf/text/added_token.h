// A token that is searched in the text before it is normalised, or right after, and never cut: special tokens, and
// words that a user added to a vocabulary. The fields are those of `tokenizers`' AddedToken.
#pragma once

#include <cstdint>
#include <string>

namespace rf::text {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // left out by decode() when special tokens are skipped
  bool single_word = false;  // not inside a longer word
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = false;   // searched in the normalised text, in its own normalised form
};

}  // namespace rf::text
