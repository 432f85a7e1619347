// The words of the original WoBERT and RoFormer tokenizer (spec R-TOK-03), as `transformers` 4's RoFormerTokenizer in
// Python gave them: lower case character by character (Case::kLower; accents are kept), without a rule for the final
// sigma; jieba without its hidden Markov model; a word of the vocabulary stays whole; any other goes through the BERT
// tokenizer's steps, which split it at punctuation and CJK characters and strip its accents. One point differs: a word
// of the vocabulary that is longer than TokenizerOptions::max_word_chars is [UNK]. Special tokens are not recognised
// here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/piece_trie.h"
#include "rf/text/segmenter.h"
#include "splitters/legacy_splitter.h"
#include "splitters/splitter.h"

namespace rf::text {

class WobertSplitter : public Splitter {
 public:
  WobertSplitter(Case letter_case, const PieceTrie& vocabulary, std::shared_ptr<const Dictionary> dictionary);
  int64_t split(std::string_view text, WordSink& sink) override;

 private:
  void put(char32_t code, const SourceSpan& span);
  void flush(WordSink& sink);
  void split_word(size_t first, size_t last, WordSink& sink);

  Case case_;
  const PieceTrie& vocabulary_;
  Segmenter segmenter_;
  LegacySplitter legacy_;
  Normalizer normalizer_;
  std::vector<MappedChar> lower_;
  std::u32string codes_;           // of the current stretch of text, in lower case
  std::vector<SourceSpan> spans_;  // of each of them
  std::vector<uint32_t> ends_;
  std::string word_;
  std::vector<SourceSpan> byte_spans_;
};

}  // namespace rf::text
