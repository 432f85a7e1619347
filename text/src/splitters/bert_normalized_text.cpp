// The text between CJK characters is normalised stretch by stretch, because the spaces around these characters separate
// marks.
#include "splitters/bert_normalized_text.h"

#include "rf/io/utf8.h"
#include "unicode/bert_characters.h"

namespace rf::text {

BertNormalizedText::BertNormalizedText(const BertSplitterOptions& options)
    : space_cjk_(options.space_cjk), normalizer_(options.lower_case, options.strip_accents) {}

int64_t BertNormalizedText::normalize_chars(std::string_view text, SourcePlace place) {
  int64_t replaced = 0;
  size_t taken = 0;
  const auto take_until = [&](size_t end) {
    replaced += normalizer_.normalize(text.substr(taken, end - taken), place, chars_);
    taken = end;
  };
  for (size_t at = 0; at < text.size();) {
    const Decoded decoded = decode_utf8(text.substr(at));
    const size_t next = at + static_cast<size_t>(decoded.length);
    if (space_cjk_ && bert_character(decoded.code).has(BertCharacter::kCjk)) {
      take_until(at);
      const NormalizedChar space{U' ', place.byte, place.byte + decoded.length, place.character};
      chars_.push_back(space);
      take_until(next);
      chars_.push_back(space);
    }
    at = next;
  }
  take_until(text.size());
  return replaced;
}

int64_t BertNormalizedText::normalize(std::string_view text, int32_t byte, int32_t character) {
  chars_.clear();
  const int64_t replaced = normalize_chars(text, {byte, character});
  write_utf8(chars_, text_, spans_);
  return replaced;
}

SourceSpan BertNormalizedText::source(size_t begin, size_t end) const {
  const SourceSpan &first = spans_[begin], &last = spans_[end - 1];
  return {first.byte_begin, last.byte_end, first.char_begin, last.char_end};
}

void BertNormalizedText::split(size_t begin, size_t end, WordSink& sink) const {
  size_t word = begin;
  int64_t chars = 0;
  const auto take = [&](size_t word_end) {
    if (chars > 0) {
      const std::string_view text = std::string_view(text_).substr(word, word_end - word);
      sink.take({text, chars, spans_.data() + word, {}, Special::kNone});
    }
    word = word_end;
    chars = 0;
  };
  for (size_t at = begin; at < end && !sink.is_full();) {
    const Decoded decoded = decode_utf8(std::string_view(text_).substr(at, end - at));
    const auto next = at + static_cast<size_t>(decoded.length);
    const bool space = decoded.code == U' ';
    if (space || bert_character(decoded.code).has(BertCharacter::kPunctuation)) {
      take(at);
      chars = space ? 0 : 1;
      take(next);
    } else {
      ++chars;
    }
    at = next;
  }
  take(end);
}

}  // namespace rf::text
