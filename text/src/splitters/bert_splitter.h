// BertNormalizer and BertPreTokenizer of the library `tokenizers`: the words of `transformers` 5's BertTokenizer (spec
// R-TOK-04 with table set A of R-TOK-05). The text is cleaned; each CJK character is a word; NFD without marks; lower
// case; split at white space and at punctuation. Text that these steps do not change (nearly all English and Chinese)
// is split without a copy. Special tokens are not recognised here.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "splitters/bert_normalizer.h"
#include "splitters/splitter.h"

namespace rf::text {

struct BertSplitterOptions {
  bool lower_case = true;
  bool strip_accents = true;
  bool space_cjk = true;                                         // tokenize_chinese_chars
  int64_t max_word_chars = std::numeric_limits<int64_t>::max();  // the middle of a longer word may be left out
};

class BertSplitter : public Splitter {
 public:
  explicit BertSplitter(const BertSplitterOptions& options);
  int64_t split(std::string_view text, WordSink& sink) override;
  int64_t steps() const { return steps_; }  // normalised characters searched for punctuation so far

 private:
  // The text between two separators.
  struct Chunk {
    int32_t byte_begin, char_begin;
    bool changes = false;  // has a character that must be normalised
    bool folds = false;    // has an ASCII letter to lower
  };
  struct Scan {
    std::string_view text;
    WordSink& sink;
    int32_t at = 0;          // byte
    int32_t more_bytes = 0;  // bytes before `at` less characters before it
    Chunk chunk{0, 0};
    int64_t replaced = 0;

    int32_t character() const { return at - more_bytes; }
    void restart() { chunk = {at, character()}; }  // a new chunk begins here
  };
  void scan_word(Scan& scan) const;
  void scan_unicode(Scan& scan);
  void flush(const Scan& scan);  // the chunk ends here
  // Passes on the character at the scan's place as a word, unchanged.
  void take_alone(Scan& scan, int32_t length);
  void split_changing(std::string_view chunk, const Chunk& begin, WordSink& sink);
  void take_chars(size_t first, size_t last, int64_t left_out, WordSink& sink);

  BertSplitterOptions options_;
  BertNormalizer normalizer_;
  int64_t steps_ = 0;
  int spaced_;  // flags of the characters that are, or get, spaces around them
  std::vector<NormalizedChar> chars_;
  std::string word_;
  std::vector<SourceSpan> spans_;
};

}  // namespace rf::text
