// The segmenter: segmentation.h over the image of a dictionary.
#include "rf/text/segmenter.h"

#include <algorithm>

#include "rf/io/utf8.h"
#include "rf/text/word_boundaries.h"
#include "segmenter/dictionary_image.h"
#include "segmenter/segmentation.h"

namespace rf::text {

void Segmenter::cut(std::u32string_view text, std::vector<uint32_t>& ends) {
  segment(dictionary_->image(), text, buffers_, ends);
}

bool Segmenter::may_part_after(char32_t c) { return run_flags(c) == 0 && c != U'\r'; }

void WordBoundaries::mark(std::string_view text, size_t first, Encoding& tokens) {
  codes_.clear();
  while (!text.empty()) codes_.push_back(take_utf8(text).code);
  segmenter_.cut(codes_, ends_);
  auto before = ends_.end();  // the word of the token before
  for (size_t i = first; i < tokens.size(); ++i) {
    const auto word = std::upper_bound(ends_.begin(), ends_.end(), static_cast<uint32_t>(tokens.char_begin[i]));
    tokens.starts_word[i] = i == first || word != before;
    before = word;
  }
}

}  // namespace rf::text
