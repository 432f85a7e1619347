#include "rf/text/word_boundaries.h"

#include <algorithm>

#include "rf/io/utf8.h"

namespace rf::text {

void WordBoundaries::mark(std::string_view text, size_t first, Encoding& tokens) {
  codes_.clear();
  while (!text.empty()) {
    const Decoded decoded = decode_utf8(text);
    codes_.push_back(decoded.code);
    text.remove_prefix(static_cast<size_t>(decoded.length));
  }
  segmenter_.cut(codes_, ends_);
  auto before = ends_.end();  // the word of the token before
  for (size_t i = first; i < tokens.size(); ++i) {
    const auto word = std::upper_bound(ends_.begin(), ends_.end(), static_cast<uint32_t>(tokens.char_begin[i]));
    tokens.starts_word[i] = i == first || word != before;
    before = word;
  }
}

}  // namespace rf::text
