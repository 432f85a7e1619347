// BERT's tokenizer in Python, `transformers`' BertTokenizerLegacy: text to words (spec R-TOK-04, table set B). It
// follows the steps of bert.tokenization_bert_legacy in order: literal special tokens are cut out; control characters
// and U+FFFD are dropped; each CJK character becomes a word; split at white space; NFC; lower case, NFD without
// category Mn (Case::kLower only); split at punctuation. One scan divides the text at white space, CJK characters and
// special tokens into chunks; a chunk of printable ASCII is split directly, any other chunk is decoded, normalised and
// then split.
#include <algorithm>

#include "pipelines/pipeline.h"
#include "rf/io/utf8.h"
#include "unicode/ascii.h"

namespace rf::text {
namespace {

constexpr SpecialRole kSplitRoles[] = {SpecialRole::kPad, SpecialRole::kUnk, SpecialRole::kCls, SpecialRole::kSep,
                                       SpecialRole::kMask};

class LegacySplitter : public Splitter {
 public:
  LegacySplitter(Case letter_case, const SpecialNames& names) : case_(letter_case), names_(names) {}
  int64_t split(std::string_view text, WordSink& sink) override {
    check_text_size(text);
    const auto size = static_cast<int32_t>(text.size());
    Scan scan{text, sink};
    while (scan.at < size && !sink.is_full()) {
      switch (ascii_class(text[static_cast<size_t>(scan.at)])) {
        case Ascii::kLetter:
        case Ascii::kCapital: ++scan.at; break;
        case Ascii::kPunctuation: scan_punctuation(scan); break;
        case Ascii::kControl:
          scan.chunk.plain = false;
          ++scan.at;
          break;
        case Ascii::kSpace:
          flush(scan, scan.chunk, scan.at);
          scan.restart(scan.at + 1);
          break;
        case Ascii::kNot: scan_unicode(scan); break;
      }
    }
    flush(scan, scan.chunk, scan.at);
    return scan.replaced;
  }

 private:
  // The text between two separators; `plain` if it is printable ASCII.
  struct Chunk {
    int32_t byte_begin, char_begin;
    bool plain;
  };
  struct Scan {
    std::string_view text;
    WordSink& sink;
    int32_t at = 0;          // byte
    int32_t more_bytes = 0;  // bytes before `at` less characters before it
    Chunk chunk{0, 0, true};
    int64_t replaced = 0;

    void restart(int32_t next) {  // a new chunk begins at byte `next`
      at = next;
      chunk = {next, next - more_bytes, true};
    }
  };
  std::optional<SpecialRole> special_at(std::string_view text) const {
    for (const SpecialRole role : kSplitRoles) {
      if (const std::string& token = name_of(names_, role); !token.empty() && text.starts_with(token)) return role;
    }
    return std::nullopt;
  }
  // Special tokens are recognised here too, after control characters inside them were dropped.
  std::optional<SpecialRole> special_in_chars() const {
    if (chars_.empty()) return std::nullopt;
    const auto same = [](const MappedChar& c, char letter) { return c.code == static_cast<char32_t>(letter); };
    for (const SpecialRole role : kSplitRoles) {
      if (std::ranges::equal(chars_, name_of(names_, role), same)) return role;
    }
    return std::nullopt;
  }
  // A special token may begin here.
  void scan_punctuation(Scan& scan) {
    const std::optional<SpecialRole> special = special_at(scan.text.substr(static_cast<size_t>(scan.at)));
    if (!special) {
      ++scan.at;
      return;
    }
    flush(scan, scan.chunk, scan.at);
    const std::string_view token = name_of(names_, *special);
    Word word = plain_word(token, std::ssize(token), scan.at, scan.at - scan.more_bytes);
    word.special = special;
    scan.sink.take(word);
    scan.restart(scan.at + static_cast<int32_t>(token.size()));
  }
  void scan_unicode(Scan& scan) {
    const Decoded decoded = decode_utf8(scan.text.substr(static_cast<size_t>(scan.at)));
    const uint32_t record = unicode_record(decoded.code);
    const int32_t begin = scan.at, end = begin + decoded.length, character = begin - scan.more_bytes;
    scan.more_bytes += decoded.length - 1;
    if (!decoded.valid) ++scan.replaced;
    const bool dropped = (record & kDrop) != 0, cjk = (record & kCjk) != 0, space = (record & kSpace) != 0;
    if (dropped || (!cjk && !space)) {
      scan.chunk.plain = false;
      scan.at = end;
      return;
    }
    flush(scan, scan.chunk, begin);
    if (cjk) flush(scan, {begin, character, false}, end);
    scan.restart(end);
  }
  void flush(const Scan& scan, const Chunk& chunk, int32_t byte_end) {
    if (chunk.byte_begin == byte_end) return;
    const std::string_view part =
        scan.text.substr(static_cast<size_t>(chunk.byte_begin), static_cast<size_t>(byte_end - chunk.byte_begin));
    const SourceSpan begin = {chunk.byte_begin, chunk.byte_begin, chunk.char_begin, chunk.char_begin};
    if (chunk.plain) {
      split_plain(part, begin, scan.sink);
    } else {
      split_unicode(part, begin, scan.sink);
    }
  }
  void split_plain(std::string_view chunk, const SourceSpan& begin, WordSink& sink) {
    folded_.assign(chunk);
    if (case_ == Case::kLower) std::ranges::transform(folded_, folded_.begin(), to_lower);
    const std::string_view folded = folded_;
    for (size_t first = 0; first < folded.size() && !sink.is_full();) {
      size_t last = first + 1;
      if (is_ascii_word(folded[first])) {
        while (last < folded.size() && is_ascii_word(folded[last])) ++last;
      }
      const auto shift = static_cast<int32_t>(first);
      const std::string_view word = folded.substr(first, last - first);
      sink.take(plain_word(word, std::ssize(word), begin.byte_begin + shift, begin.char_begin + shift));
      first = last;
    }
  }
  // Each step runs only if a character of the chunk needs it.
  void split_unicode(std::string_view chunk, const SourceSpan& begin, WordSink& sink) {
    read_chars(chunk, begin);
    normalizer_.clear_parts();
    if (any(kNfcUnstable)) normalizer_.nfc(chars_);
    const std::optional<SpecialRole> special = special_in_chars();
    if (special) return take_chars(0, chars_.size(), special, sink);
    if (case_ == Case::kLower) {
      if (any(kHasLower)) normalizer_.lower(chars_);
      if (any(kDecomposes | kNfcUnstable | kMark)) normalizer_.strip_accents(chars_);
    }
    const auto is_punctuation = [this](size_t i) { return (unicode_record(chars_[i].code) & kPunctuation) != 0; };
    for (size_t first = 0; first < chars_.size() && !sink.is_full();) {
      size_t last = first + 1;
      if (!is_punctuation(first)) {
        while (last < chars_.size() && !is_punctuation(last)) ++last;
      }
      take_chars(first, last, std::nullopt, sink);
      first = last;
    }
  }
  // Decodes a chunk into chars_, without the characters that are dropped.
  void read_chars(std::string_view chunk, const SourceSpan& begin) {
    chars_.clear();
    SourceSpan at = begin;
    while (!chunk.empty()) {
      const Decoded decoded = take_utf8(chunk);
      at.byte_end = at.byte_begin + decoded.length;
      at.char_end = at.char_begin + 1;
      if ((unicode_record(decoded.code) & kDrop) == 0) chars_.push_back({decoded.code, 0, 0, at});
      at.byte_begin = at.byte_end;
      at.char_begin = at.char_end;
    }
  }
  // Whether a character has one of the flags.
  bool any(uint32_t flags) const {
    return std::ranges::any_of(chars_, [flags](const MappedChar& c) { return (unicode_record(c.code) & flags) != 0; });
  }
  void take_chars(size_t first, size_t last, std::optional<SpecialRole> special, WordSink& sink) {
    folded_.clear();
    spans_.clear();
    for (size_t i = first; i < last; ++i) {
      append_utf8(chars_[i].code, folded_);
      spans_.resize(folded_.size(), chars_[i].span);
    }
    sink.take({folded_, static_cast<int64_t>(last - first), spans_.data(), {}, special});
  }

  Case case_;
  const SpecialNames names_;
  Normalizer normalizer_;
  std::string folded_;
  std::vector<MappedChar> chars_;
  std::vector<SourceSpan> spans_;
};

}  // namespace

std::unique_ptr<Splitter> make_legacy_splitter(Case letter_case, const SpecialNames& names) {
  return std::make_unique<LegacySplitter>(letter_case, names);
}

namespace pipelines {

const PipelineEntry& bert_legacy() {
  static const PipelineEntry entry = {
      .name = "bert-legacy",
      .classes = {{.name = "BertTokenizerLegacy"}},
      .saved_class = "BertTokenizerLegacy",
      .in_tokenizer_json = InTokenizerJson::kNone,
      .basic_tokenizer = true,
      .make_splitter = [](const TokenizerOptions& options, const Vocabulary& vocabulary, const PieceTrie&) {
        return make_legacy_splitter(options.letter_case, vocabulary.special_names());
      }};
  return entry;
}

}  // namespace pipelines
}  // namespace rf::text
