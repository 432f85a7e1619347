// A token that is looked for in the text itself, before (or right after) it is normalised, and kept whole: special
// tokens, and words that a user added to a vocabulary. The fields are those of `tokenizers`' AddedToken.
#pragma once

#include <cstdint>
#include <string>

namespace rf::text {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // left out by decode() when special tokens are skipped
  bool single_word = false;  // not inside a longer word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // looked for in the normalised text, in its own normalised form
};

}  // namespace rf::text
