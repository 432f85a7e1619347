// The first half of a tokenizer: text to normalised words with their sources in the text.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "rf/text/vocabulary.h"
#include "unicode/unicode.h"

namespace rf::text {

struct Word {
  // Normalised, valid UTF-8, not empty; valid during the call. The middle of a word may be omitted if the word is too
  // long for the tokenizer and becomes an unknown token; `chars` counts it nevertheless.
  std::string_view text;
  int64_t chars;  // its code points
  // The source of each byte of `text`; null: each character has the same place and number of bytes in the source.
  const SourceSpan* spans;
  SourceSpan begin = {};                    // used if spans is null: start of the source
  std::optional<SpecialRole> special = {};  // of a special token, which is not split
  int32_t token = -1;  // the id of the token that equals the word, if the splitter has looked it up

  SourceSpan source() const {  // of the whole word
    int32_t first_char = 0;
    return source(0, text.size(), first_char);
  }
  // The source of bytes [first, last) of the word, which are whole characters; `character` is the number of characters
  // before `first`, and afterwards before `last`.
  [[gnu::always_inline]] SourceSpan source(size_t first, size_t last, int32_t& character) const {
    if (spans == nullptr) return plain_source(first, last, character);
    SourceSpan whole = spans[first];
    for (size_t i = first + 1; i < last; ++i) whole = join(whole, spans[i]);
    return whole;
  }

 private:
  SourceSpan plain_source(size_t first, size_t last, int32_t& character) const {
    const auto begin_byte = static_cast<int32_t>(first), end_byte = static_cast<int32_t>(last);
    const int32_t first_char = character;
    if (chars == static_cast<int64_t>(text.size())) {
      character += end_byte - begin_byte;
    } else if (last == text.size()) {
      character = static_cast<int32_t>(chars);
    } else {
      character += count_characters(text.substr(first, last - first));
    }
    return {begin.byte_begin + begin_byte, begin.byte_begin + end_byte, begin.char_begin + first_char,
            begin.char_begin + character};
  }
};

// A word whose source begins there; each character has the same number of bytes in the source.
inline Word plain_word(std::string_view text, int64_t chars, int32_t byte, int32_t character) {
  return {text, chars, nullptr, {byte, byte, character, character}};
}

class WordSink {
 public:
  virtual ~WordSink() = default;
  virtual void take(const Word& word) = 0;
  // The sink ignores further words, so their producer may stop.
  bool is_full() const { return full_; }

 protected:
  bool full_ = false;
};

// Throws Error when a text has 2^31 bytes or more: offsets are 32 bits.
inline void check_text_size(std::string_view text) {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    fail("tokenize", "a text must be smaller than 2^31 bytes, got {}", text.size());
  }
}

// Holds buffers: use one object per thread.
class Splitter {
 public:
  virtual ~Splitter() = default;
  // Passes the words of the text to the sink, in order, until it is full. Returns the number of ill-formed UTF-8
  // sequences replaced in the part that was read. Throws Error if the text has 2^31 bytes or more.
  virtual int64_t split(std::string_view text, WordSink& sink) = 0;
};

}  // namespace rf::text
