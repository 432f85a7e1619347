// A token that is matched in the text before normalisation, or right after it, and never split: special tokens, and
// words that a user added to a vocabulary. The fields equal `tokenizers`' AddedToken.
#pragma once

#include <cstdint>
#include <string>

namespace rf::text {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // omitted by decode() if special tokens are skipped
  bool single_word = false;  // not inside a longer word
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = false;   // searched in the normalised text, in its own normalised form
};

}  // namespace rf::text
