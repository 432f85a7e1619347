// Text is processed in stretches, whose ends neither normalisation nor jieba's words cross. A stretch is normalised
// before jieba's step, so that a word may span characters that cleaning dropped.
#include "splitters/roformer_splitter.h"

#include <utility>

#include "unicode/utf8.h"

namespace rf::text {
namespace {

constexpr size_t kStretchBytes = size_t{1} << 14;  // at least; the buffers of a stretch fit into the second-level cache

}  // namespace

RoformerSplitter::RoformerSplitter(bool lower_case, bool strip_accents, const PieceTrie& vocabulary,
                                   std::shared_ptr<const Dictionary> dictionary)
    : normalizer_(lower_case, strip_accents), vocabulary_(vocabulary), segmenter_(std::move(dictionary)) {}

int64_t RoformerSplitter::split(std::string_view text, WordSink& sink) {
  int64_t replaced = 0;
  SourcePlace place{0, 0};
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = stretch_end(text, begin);
    chars_.clear();
    replaced += normalizer_.normalize(text.substr(begin, end - begin), place, chars_);
    codes_.resize(chars_.size());
    for (size_t i = 0; i < chars_.size(); ++i) codes_[i] = chars_[i].code;
    segmenter_.cut(codes_, ends_);
    size_t first = 0;
    for (const size_t last : ends_) {
      split_word(first, last, sink);
      first = last;
    }
    begin = end;
  }
  return replaced;
}

size_t RoformerSplitter::stretch_end(std::string_view text, size_t begin) const {
  if (text.size() - begin <= kStretchBytes) return text.size();
  size_t at = begin + kStretchBytes;
  while (at < text.size() && !begins_character(text[at])) ++at;
  while (at < text.size()) {
    const Decoded decoded = decode_utf8(text.substr(at));
    at += static_cast<size_t>(decoded.length);
    const BertCharacter& character = bert_character(decoded.code);
    if (character.has(BertCharacter::kSpace)) break;
    if (normalizer_.keeps(character) && Segmenter::may_part_after(decoded.code)) break;
  }
  return at;
}

void RoformerSplitter::split_word(size_t first, size_t last, WordSink& sink) {
  Word word = word_of(first, last);
  word.token = vocabulary_.find(word.text);
  if (word.token >= 0) {
    sink.take(word);
    return;
  }
  size_t begin = first;  // of the characters since the last separator
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
  write_utf8(std::span(chars_).subspan(first, last - first), word_, spans_);
  return {word_, count, spans_.data(), {}, Special::kNone};
}

}  // namespace rf::text
