// The first half of a tokenizer: text to normalised words that remember where in the text they come from.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "unicode.h"

namespace rf::text {

// In the order of SpecialIds.
enum class Special : int8_t { kNone = -1, kPad, kUnk, kCls, kSep, kMask };
inline constexpr std::array<std::string_view, 5> kSpecialTokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

struct Word {
  std::string_view text;  // normalised, valid UTF-8, not empty; valid during the call
  int64_t chars;          // its code points
  const SourceSpan*
      spans;         // of each byte of `text`; null: byte i is byte and character i of the source from `begin` on
  SourceSpan begin;  // used when spans is null: where the source starts
  Special special;   // not kNone: a special token, kept whole

  // The source of bytes [first, last) of the word.
  SourceSpan source(size_t first, size_t last) const {
    if (spans == nullptr) {
      const auto a = static_cast<int32_t>(first), b = static_cast<int32_t>(last);
      return {begin.byte_begin + a, begin.byte_begin + b, begin.char_begin + a, begin.char_begin + b};
    }
    SourceSpan whole = spans[first];
    for (size_t i = first + 1; i < last; ++i) whole = join(whole, spans[i]);
    return whole;
  }
};

class WordSink {
 public:
  virtual ~WordSink() = default;
  virtual void take(const Word& word) = 0;
};

// Holds buffers: one object a thread.
class Splitter {
 public:
  virtual ~Splitter() = default;
  // Gives the words of the text to the sink, in order. Returns how many ill-formed UTF-8 sequences were replaced.
  // Throws Error when the text has 2^31 bytes or more.
  virtual int64_t split(std::string_view text, WordSink& sink) = 0;
};

}  // namespace rf::text
