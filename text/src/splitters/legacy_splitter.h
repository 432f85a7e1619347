// The first half of the BERT tokenizer: text to words (spec R-TOK-04, table set B). It follows the steps of
// `transformers`' bert.tokenization_bert_legacy in order: literal special tokens are cut out; control characters and
// U+FFFD are dropped; each CJK character becomes a word; split at white space; NFC; lower case, NFD without category Mn
// (Case::kLower only); split at punctuation. A plain ASCII stretch without white space is split by a faster path.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rf/text/tokenizer.h"
#include "rf/text/vocabulary.h"
#include "splitters/splitter.h"
#include "unicode/unicode.h"

namespace rf::text {

// Holds buffers: use one object per thread.
class LegacySplitter : public Splitter {
 public:
  // The special tokens are the non-empty names.
  explicit LegacySplitter(Case letter_case, const SpecialNames& names = {});
  int64_t split(std::string_view text, WordSink& sink) override;

 private:
  // The text between two separators; `plain` if it is printable ASCII.
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
  Special special_at(std::string_view text) const;
  Special special_in_chars() const;
  void scan_punctuation(Scan& scan);  // a special token may begin here
  void scan_unicode(Scan& scan);
  void flush(const Scan& scan, const Chunk& chunk, int32_t byte_end);
  void split_plain(std::string_view chunk, const SourceSpan& begin, WordSink& sink);
  void split_unicode(std::string_view chunk, const SourceSpan& begin, WordSink& sink);
  void read_chars(std::string_view chunk, const SourceSpan& begin);
  bool any(uint32_t flags) const;  // whether a character has one of the flags
  void take_chars(size_t first, size_t last, Special special, WordSink& sink);

  Case case_;
  std::array<std::string, kSpecialTokens.size()> specials_;  // by Special
  std::array<char, 128> fold_;                               // ASCII to the requested letter case
  Normalizer normalizer_;
  std::string folded_;
  std::vector<MappedChar> chars_;
  std::vector<SourceSpan> spans_;
};

}  // namespace rf::text
