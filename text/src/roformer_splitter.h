// The words of `transformers` 5's RoFormerTokenizer (spec R-TOK-01): BertNormalizer without spaces around CJK
// characters, then jieba without its hidden Markov model. A word that the vocabulary has stays whole; any other is cut
// before and behind each CJK character. Nothing is split at punctuation: a jieba word may hold some. Knows no special
// tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bert_normalizer.h"
#include "piece_trie.h"
#include "rf/text/segmenter.h"
#include "splitter.h"

namespace rf::text {

class RoformerSplitter : public Splitter {
 public:
  RoformerSplitter(bool lower_case, bool strip_accents, const PieceTrie& vocabulary,
                   std::shared_ptr<const Dictionary> dictionary);
  int64_t split(std::string_view text, WordSink& sink) override;

 private:
  // Where the stretch of the text that begins there ends.
  size_t stretch_end(std::string_view text, size_t begin) const;
  // Characters [first, last) of the normalised text, which are a word of jieba's.
  void split_word(size_t first, size_t last, WordSink& sink);
  // The same characters as a word to give on, valid until the next.
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
