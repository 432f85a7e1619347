// GPT-2's splitting expression, without a regex engine (regex_classes.h defines the classes):
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Every character belongs to one word.
#pragma once

#include <cstddef>
#include <string_view>

namespace rf::text {

struct Gpt2Word {
  size_t end;
  bool ascii;
};

// The word that begins at `begin`; text is valid UTF-8, begin < text.size().
Gpt2Word next_gpt2_word(std::string_view text, size_t begin);

}  // namespace rf::text
