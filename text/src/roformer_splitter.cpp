// The whole text is normalised before jieba sees it, so that a word may span what cleaning dropped.
#include "roformer_splitter.h"

#include <utility>

#include "utf8.h"

namespace rf::text {

RoformerSplitter::RoformerSplitter(bool lower_case, bool strip_accents, const PieceTrie& vocabulary,
                                   std::shared_ptr<const Dictionary> dictionary)
    : normalizer_(lower_case, strip_accents), vocabulary_(vocabulary), segmenter_(std::move(dictionary)) {}

int64_t RoformerSplitter::split(std::string_view text, WordSink& sink) {
  chars_.clear();
  const int64_t replaced = normalizer_.normalize(text, 0, 0, chars_);
  codes_.resize(chars_.size());
  for (size_t i = 0; i < chars_.size(); ++i) codes_[i] = chars_[i].code;
  segmenter_.cut(codes_, ends_);
  size_t first = 0;
  for (const size_t last : ends_) {
    split_word(first, last, sink);
    first = last;
  }
  return replaced;
}

void RoformerSplitter::split_word(size_t first, size_t last, WordSink& sink) {
  Word word = word_of(first, last);
  word.token = vocabulary_.find(word.text);
  if (word.token >= 0) {
    sink.take(word);
    return;
  }
  size_t begin = first;  // of the characters that wait for what parts them from the next
  const auto take_until = [&](size_t end) {
    if (begin < end) sink.take(word_of(begin, end));
  };
  for (size_t i = first; i < last; ++i) {
    const bool cjk = bert_character(chars_[i].code).has(BertCharacter::kCjk);
    if (!cjk && chars_[i].code != U' ') continue;
    take_until(i);
    if (cjk) sink.take(word_of(i, i + 1));
    begin = i + 1;
  }
  take_until(last);
}

Word RoformerSplitter::word_of(size_t first, size_t last) {
  word_.clear();
  const NormalizedChar& front = chars_[first];
  bool as_in_source = true;
  for (size_t i = first; i < last; ++i) {
    const NormalizedChar& c = chars_[i];
    as_in_source = as_in_source && c.byte_begin == front.byte_begin + static_cast<int32_t>(word_.size());
    append_utf8(c.code, word_);
    as_in_source = as_in_source && c.byte_end == front.byte_begin + static_cast<int32_t>(word_.size());
  }
  const auto count = static_cast<int64_t>(last - first);
  if (as_in_source) {
    return {
        word_, count, nullptr, {front.byte_begin, front.byte_begin, front.character, front.character}, Special::kNone};
  }
  spans_.clear();
  size_t end = 0;
  for (size_t i = first; i < last; ++i) {
    const NormalizedChar& c = chars_[i];
    end += static_cast<size_t>(utf8_length(c.code));
    spans_.resize(end, {c.byte_begin, c.byte_end, c.character, c.character + 1});
  }
  return {word_, count, spans_.data(), {}, Special::kNone};
}

}  // namespace rf::text
