// The words of `transformers` 5's RoFormerTokenizer (spec R-TOK-01): BertNormalizer without spaces around CJK
// characters, then jieba without its hidden Markov model. A word of the vocabulary stays whole; any other word is split
// before and after each CJK character. Words are not split at punctuation, because a jieba word may contain it. Special
// tokens are not recognised here.
//
// Text is processed in stretches; neither normalisation nor jieba's words cross their ends. A stretch is normalised
// before jieba's step, so that a word may span characters that cleaning dropped.
#include <memory>

#include "pipelines/pipeline.h"
#include "rf/io/utf8.h"
#include "splitters/bert_normalizer.h"

namespace rf::text {
namespace {

class RoformerSplitter : public Splitter {
 public:
  RoformerSplitter(const TokenizerOptions& options, const PieceTrie& vocabulary)
      : normalizer_(options.letter_case, strips_accents(options)),
        vocabulary_(vocabulary),
        segmenter_(options.dictionary) {}
  int64_t split(std::string_view text, WordSink& sink) override {
    int64_t replaced = 0;
    SourcePlace place{0, 0};
    for (size_t begin = 0; begin < text.size() && !sink.is_full();) {
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

 private:
  // The end of the stretch of text that begins there.
  size_t stretch_end(std::string_view text, size_t begin) const {
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
  // Passes on characters [first, last) of the normalised text, which form a jieba word.
  void split_word(size_t first, size_t last, WordSink& sink) {
    Word word = word_of(first, last);
    word.token = vocabulary_.find(word.text);
    if (word.token >= 0) return sink.take(word);
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
  // The same characters as a word to pass on, valid until the next call.
  Word word_of(size_t first, size_t last) {
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
    if (as_in_source) return plain_word(word_, count, front.byte_begin, front.character);
    write_utf8(std::span(chars_).subspan(first, last - first), word_, spans_);
    return {word_, count, spans_.data()};
  }

  BertNormalizer normalizer_;
  const PieceTrie& vocabulary_;
  Segmenter segmenter_;
  std::vector<NormalizedChar> chars_;
  std::u32string codes_;
  std::vector<uint32_t> ends_;
  std::string word_;
  std::vector<SourceSpan> spans_;
};

}  // namespace

namespace pipelines {

const PipelineEntry& roformer() {
  static const PipelineEntry entry = {
      .name = "roformer",
      .classes = {{.name = "RoFormerTokenizer", .model_type = "roformer"}},
      .saved_class = "RoFormerTokenizer",
      .in_tokenizer_json = InTokenizerJson::kPart,
      .segments_words = true,
      .make_splitter = [](const TokenizerOptions& options, const Vocabulary&, const PieceTrie& trie) -> SplitterPtr {
        return std::make_unique<RoformerSplitter>(options, trie);
      }};
  return entry;
}
}  // namespace pipelines
}  // namespace rf::text
