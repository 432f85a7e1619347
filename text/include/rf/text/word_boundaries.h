// Where words begin in Chinese, over the tokens of any tokenizer: one of characters has no words of its own, so
// whole-word masking needs those of the segmenter (spec R-TRN-01).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rf/text/encoding.h"
#include "rf/text/segmenter.h"

namespace rf::text {

// Holds buffers: one object a thread.
class WordBoundaries {
 public:
  explicit WordBoundaries(std::shared_ptr<const Dictionary> dictionary) : segmenter_(std::move(dictionary)) {}
  // The tokens from `first` on are those of `text`. Sets starts_word: 1 for a token that begins in another word of
  // jieba's than the token before it.
  void mark(std::string_view text, size_t first, Encoding& tokens);

 private:
  Segmenter segmenter_;
  std::u32string codes_;
  std::vector<uint32_t> ends_;
};

}  // namespace rf::text
