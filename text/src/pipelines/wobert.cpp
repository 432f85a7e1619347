// The words of the original WoBERT and RoFormer tokenizer (spec R-TOK-03), as in `transformers` 4's RoFormerTokenizer
// in Python: lower case character by character (Case::kLower; accents are kept), without a rule for the final sigma;
// jieba without its hidden Markov model; a word of the vocabulary stays whole; any other word goes through the BERT
// tokenizer's steps, which split it at punctuation and CJK characters and strip its accents. One point differs: a word
// of the vocabulary that is longer than TokenizerOptions::max_word_chars is [UNK]. Special tokens are not recognised
// here.
//
// The text is processed in stretches that end where one of jieba's runs ends, so that memory is bounded by the longest
// run.
#include <memory>

#include "pipelines/pipeline.h"
#include "rf/io/utf8.h"

namespace rf::text {
namespace {

constexpr size_t kStretch = 4096;  // characters, at least

// Receives the words into which a jieba word is split, and passes them on with offsets into the original text. A jieba
// word is one character, or characters that normalisation maps one by one, so each character of an inner word has one
// source.
class OffsetMapper : public WordSink {
 public:
  // `chars` holds the source of each character of the outer word.
  OffsetMapper(const SourceSpan* chars, WordSink& sink, std::vector<SourceSpan>& byte_spans)
      : chars_(chars), sink_(sink), byte_spans_(byte_spans) {}

  void take(const Word& word) override {
    byte_spans_.clear();
    int32_t character = 0;
    for (size_t i = 0; i < word.text.size();) {
      const auto length = static_cast<size_t>(decode_utf8(word.text.substr(i)).length);
      const SourceSpan inner = word.source(i, i + length, character);
      i += length;
      byte_spans_.resize(i, chars_[inner.char_begin]);
    }
    sink_.take({word.text, word.chars, byte_spans_.data(), {}, word.special});
    full_ = sink_.is_full();
  }

 private:
  const SourceSpan* chars_;
  WordSink& sink_;
  std::vector<SourceSpan>& byte_spans_;
};

class WobertSplitter : public Splitter {
 public:
  WobertSplitter(const TokenizerOptions& options, const PieceTrie& vocabulary)
      : case_(options.letter_case),
        vocabulary_(vocabulary),
        segmenter_(options.dictionary),
        legacy_(make_legacy_splitter(case_)) {}
  int64_t split(std::string_view text, WordSink& sink) override {
    check_text_size(text);
    int64_t replaced = 0;
    SourceSpan at{0, 0, 0, 0};
    while (!text.empty() && !sink.is_full()) {
      const Decoded decoded = take_utf8(text);
      if (!decoded.valid) ++replaced;
      at.byte_end += decoded.length;
      ++at.char_end;
      put(decoded.code, at);
      at.byte_begin = at.byte_end;
      at.char_begin = at.char_end;
      if (codes_.size() >= kStretch && Segmenter::may_part_after(codes_.back())) flush(sink);
    }
    flush(sink);
    return replaced;
  }

 private:
  void put(char32_t code, const SourceSpan& span) {
    lower_.assign(1, {code, 0, 0, span});
    if (case_ == Case::kLower && (unicode_record(code) & kHasLower) != 0) normalizer_.lower(lower_);
    for (const MappedChar& c : lower_) {  // two for U+0130
      codes_.push_back(c.code);
      spans_.push_back(span);
    }
  }
  void flush(WordSink& sink) {
    segmenter_.cut(codes_, ends_);
    size_t first = 0;
    for (const uint32_t last : ends_) {
      split_word(first, last, sink);
      first = last;
    }
    codes_.clear();
    spans_.clear();
  }
  void split_word(size_t first, size_t last, WordSink& sink) {
    word_.clear();
    byte_spans_.clear();
    for (size_t i = first; i < last; ++i) {
      append_utf8(codes_[i], word_);
      byte_spans_.resize(word_.size(), spans_[i]);
    }
    if (vocabulary_.contains(word_)) {
      sink.take({word_, static_cast<int64_t>(last - first), byte_spans_.data()});
    } else {
      OffsetMapper offset_mapper(&spans_[first], sink, byte_spans_);
      legacy_->split(word_, offset_mapper);
    }
  }

  Case case_;
  const PieceTrie& vocabulary_;
  Segmenter segmenter_;
  std::unique_ptr<Splitter> legacy_;
  Normalizer normalizer_;
  std::vector<MappedChar> lower_;
  std::u32string codes_;           // of the current stretch of text, in lower case
  std::vector<SourceSpan> spans_;  // of each character
  std::vector<uint32_t> ends_;
  std::string word_;
  std::vector<SourceSpan> byte_spans_;
};

}  // namespace

namespace pipelines {

const PipelineEntry& wobert() {
  static const PipelineEntry entry = {
      .name = "wobert",
      .saved_class = "RoFormerTokenizer",
      .in_tokenizer_json = InTokenizerJson::kPart,
      .segments_words = true,
      .basic_tokenizer = true,
      .make_splitter = [](const TokenizerOptions& options, const Vocabulary&, const PieceTrie& trie) -> SplitterPtr {
        return std::make_unique<WobertSplitter>(options, trie);
      }};
  return entry;
}
}  // namespace pipelines
}  // namespace rf::text
