// The first half of the BERT tokenizer: text to words (spec R-TOK-04, table set B). The steps are those of
// `transformers`' bert.tokenization_bert_legacy, in its order: literal special tokens are cut out; control characters
// and U+FFFD dropped; CJK characters made words of their own; split at white space; NFC; lower-case, NFD without
// category Mn (Case::kLower only); split at punctuation. A stretch without white space that is plain ASCII takes a
// short way.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rf/text/wordpiece.h"
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
class WordSplitter {
 public:
  explicit WordSplitter(Case letter_case);
  // Gives the words of the text to the sink, in order. Returns how many ill-formed UTF-8 sequences were replaced.
  // Throws Error when the text has 2^31 bytes or more.
  int64_t split(std::string_view text, WordSink& sink);

 private:
  // What lies between two separators; `plain` when it is printable ASCII.
  struct Chunk {
    int32_t byte_begin, char_begin;
    bool plain;
  };
  struct Scan {
    std::string_view text;
    WordSink& sink;
    int32_t at = 0;          // byte
    int32_t more_bytes = 0;  // bytes before `at` less characters before it
    Chunk chunk{0, 0, true};
    int64_t replaced = 0;

    void restart(int32_t next) {  // a new chunk begins at byte `next`
      at = next;
      chunk = {next, next - more_bytes, true};
    }
  };
  void scan_bracket(Scan& scan);
  void scan_unicode(Scan& scan);
  void flush(const Scan& scan, const Chunk& chunk, int32_t byte_end);
  void split_plain(std::string_view chunk, const SourceSpan& begin, WordSink& sink);
  void split_unicode(std::string_view chunk, const SourceSpan& begin, WordSink& sink);
  void read_chars(std::string_view chunk, const SourceSpan& begin);
  bool any(uint32_t flags) const;  // whether a character has one of these
  void take_chars(size_t first, size_t last, Special special, WordSink& sink);

  Case case_;
  std::array<char, 128> fold_;  // ASCII to the letter case wanted
  Normalizer normalizer_;
  std::string folded_;
  std::vector<MappedChar> chars_;
  std::vector<SourceSpan> spans_;
};

}  // namespace rf::text
