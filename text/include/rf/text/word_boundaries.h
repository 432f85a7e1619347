// Marks where Chinese words begin in the tokens of any tokenizer: a tokenizer of characters does not know words, so
// whole-word masking needs the segmenter's words (spec R-TRN-01).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rf/text/tokenizer.h"

namespace rf::text {

// Holds buffers: use one object per thread.
class WordBoundaries {
 public:
  explicit WordBoundaries(std::shared_ptr<const Dictionary> dictionary) : segmenter_(std::move(dictionary)) {}
  // The tokens from `first` on must be the tokens of `text`. Sets starts_word: 1 for a token that begins in another
  // jieba word than the previous token.
  void mark(std::string_view text, size_t first, Encoding& tokens);

 private:
  Segmenter segmenter_;
  std::u32string codes_;
  std::vector<uint32_t> ends_;
};

}  // namespace rf::text
