// The tokens of a text and their positions in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rf::text {

struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> byte_begin, byte_end;  // into the original text, half-open; [0, 0) for special tokens added
  std::vector<int32_t> char_begin, char_end;  // the same in code points, as in `tokenizers`
  std::vector<uint8_t> starts_word;           // 1 where a token begins a word (no "##" continuation)
  int64_t replaced_bytes = 0;                 // invalid UTF-8 sequences replaced

  size_t size() const { return ids.size(); }
  void clear();
  void reserve(size_t tokens);
  void append(const Encoding& other, size_t begin, size_t end);  // its tokens begin..end-1
  void append_special(int32_t id);                               // a token without text
};

}  // namespace rf::text
