// Appends the tokens of one text to an encoding, whose columns grow by what the text so far says of the rest: doubling
// them would take three times the memory of the tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "rf/text/encoding.h"
#include "unicode.h"

namespace rf::text {

class EncodingWriter {
 public:
  EncodingWriter(Encoding& out, size_t text_bytes) : out_(out), first_(out.size()), text_bytes_(text_bytes) {}

  [[gnu::always_inline]] void append(int32_t id, SourceSpan source, bool starts_word) {
    if (out_.ids.size() == out_.ids.capacity()) [[unlikely]]
      grow(static_cast<size_t>(source.byte_begin));
    out_.ids.push_back(id);
    out_.byte_begin.push_back(source.byte_begin);
    out_.byte_end.push_back(source.byte_end);
    out_.char_begin.push_back(source.char_begin);
    out_.char_end.push_back(source.char_end);
    out_.starts_word.push_back(starts_word ? 1 : 0);
  }

 private:
  [[gnu::noinline, gnu::cold]] void grow(size_t bytes_done) {
    constexpr size_t kFewTokens = size_t{1} << 16;  // too few to tell the rest
    constexpr size_t kBytesPerToken = 3;            // few texts have more tokens than that
    constexpr double kMargin = 1.03;
    const size_t size = out_.size(), made = size - first_;
    size_t room = std::max(size + size / 8, std::min(4 * size, kFewTokens)) + 64;
    if (made == 0) room = size + std::min(text_bytes_ / kBytesPerToken + 1, kFewTokens);
    if (made >= kFewTokens / 2 && bytes_done > 0) {
      const double tokens_per_byte = static_cast<double>(made) / static_cast<double>(bytes_done);
      const double rest = tokens_per_byte * static_cast<double>(text_bytes_ - std::min(text_bytes_, bytes_done));
      room = std::max(room, size + static_cast<size_t>(kMargin * rest));
    }
    out_.reserve(room);
  }

  Encoding& out_;
  const size_t first_, text_bytes_;
};

}  // namespace rf::text
