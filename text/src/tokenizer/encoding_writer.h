// Appends the tokens of one text to an encoding. Its columns grow by the number of tokens that the text so far predicts
// for the rest: doubling them would take three times the memory of the tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rf/text/tokenizer.h"
#include "unicode/unicode.h"

namespace rf::text {

// While a writer exists, nothing else may append to a column of the encoding or change its capacity.
class EncodingWriter {
 public:
  // `max_tokens`: the requested number; some more may be produced and removed again.
  EncodingWriter(Encoding& out, size_t text_bytes, size_t max_tokens)
      : out_(out),
        first_(out.size()),
        text_bytes_(text_bytes),
        max_tokens_(max_tokens),
        capacity_(std::min({out.ids.capacity(), out.byte_begin.capacity(), out.byte_end.capacity(),
                            out.char_begin.capacity(), out.char_end.capacity(), out.starts_word.capacity()})) {}

  size_t count() const { return out_.size() - first_; }  // of tokens appended
  bool is_full() const { return count() >= max_tokens_; }
  size_t end() const { return first_ + max_tokens_; }

  [[gnu::always_inline]] void append(int32_t id, SourceSpan source, bool starts_word) {
    if (out_.ids.size() == capacity_) [[unlikely]]
      grow(static_cast<size_t>(source.byte_begin));
    push(out_.ids, id);
    push(out_.byte_begin, source.byte_begin);
    push(out_.byte_end, source.byte_end);
    push(out_.char_begin, source.char_begin);
    push(out_.char_end, source.char_end);
    push(out_.starts_word, uint8_t{starts_word});
  }

 private:
  // All six columns have room for capacity_ tokens, so append() checks only one column.
  template <class T>
  [[gnu::always_inline]] static void push(std::vector<T>& column, T value) {
    if (column.size() == column.capacity()) __builtin_unreachable();
    column.push_back(value);
  }

  [[gnu::noinline, gnu::cold]] void grow(size_t bytes_done) {
    constexpr size_t kFewTokens = size_t{1} << 16;  // too few to estimate the rest
    constexpr size_t kFewest = 64;
    constexpr size_t kBytesPerToken = 3;  // few texts have more tokens than that
    constexpr double kMargin = 1.03;
    const size_t size = out_.size(), made = size - first_;
    const size_t rest = text_bytes_ - std::min(text_bytes_, bytes_done);
    const size_t more = size < kFewTokens ? size / 2 : size / 8;
    capacity_ = size + std::max(more, std::min(rest / kBytesPerToken, kFewTokens) + 1);
    if (made >= kFewTokens / 2 && bytes_done > 0) {
      const double tokens_per_byte = static_cast<double>(made) / static_cast<double>(bytes_done);
      const double expected = kMargin * tokens_per_byte * static_cast<double>(rest);
      capacity_ = std::max(capacity_, size + static_cast<size_t>(expected));
    }
    const size_t wanted = max_tokens_ - std::min(max_tokens_, made);
    capacity_ = size + std::min(capacity_ - size, std::max({wanted, size / 2, kFewest}));
    out_.reserve(capacity_);
  }

  Encoding& out_;
  const size_t first_, text_bytes_, max_tokens_;
  size_t capacity_;
};

}  // namespace rf::text
