// The words of `transformers` 5's RoFormerTokenizer (spec R-TOK-01): BertNormalizer without spaces around CJK
// characters, then jieba without its hidden Markov model. A word that the vocabulary has stays whole; any other is cut
// before and after each CJK character. Nothing is split at punctuation: a jieba word may contain it. Special tokens are
// not recognised here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/piece_trie.h"
#include "rf/text/segmenter.h"
#include "splitters/bert_normalizer.h"
#include "splitters/splitter.h"

namespace rf::text {

class RoformerSplitter : public Splitter {
 public:
  RoformerSplitter(bool lower_case, bool strip_accents, const PieceTrie& vocabulary,
                   std::shared_ptr<const Dictionary> dictionary);
  int64_t split(std::string_view text, WordSink& sink) override;

 private:
  // The end of the stretch of text that begins there.
  size_t stretch_end(std::string_view text, size_t begin) const;
  // Passes on characters [first, last) of the normalised text, which are one of jieba's words.
  void split_word(size_t first, size_t last, WordSink& sink);
  // The same characters as a word to pass on, valid until the next call.
  Word word_of(size_t first, size_t last);

  BertNormalizer normalizer_;
  const PieceTrie& vocabulary_;
  Segmenter segmenter_;
  std::vector<NormalizedChar> chars_;
  std::u32string codes_;
  std::vector<uint32_t> ends_;
  std::string word_;
  std::vector<SourceSpan> spans_;
};

}  // namespace rf::text
