// transformers' BertTokenizer: BertNormalizer and BertPreTokenizer of the library `tokenizers` (spec R-TOK-04 with
// table set A of R-TOK-05). The text is cleaned; each CJK character is a word; NFD without marks; lower case; split at
// white space and at punctuation. Special tokens are not recognised here.
#include <algorithm>
#include <memory>
#include <utility>

#include "pipelines/pipeline.h"
#include "rf/io/utf8.h"
#include "splitters/bert_normalizer.h"
#include "unicode/ascii.h"

namespace rf::text {
namespace {

// One scan divides the text at characters that always separate words: white space, punctuation and CJK characters. A
// chunk between them that normalisation does not change (nearly all English and Chinese) is a word, without a copy; any
// other chunk is normalised and then split.
class BertSplitter : public Splitter {
 public:
  explicit BertSplitter(const TokenizerOptions& options)
      : lower_case_(options.letter_case == Case::kLower),
        max_word_chars_(options.max_word_chars),
        normalizer_(options.letter_case, strips_accents(options)),
        spaced_(BertCharacter::kSpace | (options.tokenize_chinese_chars ? BertCharacter::kCjk : 0)) {}
  int64_t split(std::string_view text, WordSink& sink) override {
    check_text_size(text);
    const auto size = static_cast<int32_t>(text.size());
    Scan scan{text, sink};
    while (scan.at < size && !sink.is_full()) {
      switch (ascii_class(text[static_cast<size_t>(scan.at)])) {
        case Ascii::kLetter:
        case Ascii::kCapital: scan_word(scan); break;
        case Ascii::kSpace:
          flush(scan);
          ++scan.at;
          scan.restart();
          break;
        case Ascii::kPunctuation:
          flush(scan);
          take_alone(scan, 1);
          break;
        case Ascii::kControl:
          scan.chunk.changes = true;
          ++scan.at;
          break;
        case Ascii::kNot: scan_unicode(scan); break;
      }
    }
    flush(scan);
    return scan.replaced;
  }

 private:
  // The text between two separators.
  struct Chunk {
    int32_t byte_begin, char_begin;
    bool changes = false;  // has a character that must be normalised
    bool folds = false;    // has an ASCII letter to lower
  };
  struct Scan {
    std::string_view text;
    WordSink& sink;
    int32_t at = 0;          // byte
    int32_t more_bytes = 0;  // bytes before `at` less characters before it
    Chunk chunk{0, 0};
    int64_t replaced = 0;

    int32_t character() const { return at - more_bytes; }
    void restart() { chunk = {at, character()}; }  // a new chunk begins here
  };
  // Skips ASCII letters and digits.
  void scan_word(Scan& scan) const {
    const auto size = static_cast<int32_t>(scan.text.size());
    bool capitals = false;
    while (scan.at < size) {
      const Ascii kind = ascii_class(scan.text[static_cast<size_t>(scan.at)]);
      if (kind > Ascii::kCapital) break;
      capitals |= kind == Ascii::kCapital;
      ++scan.at;
    }
    scan.chunk.folds |= capitals && lower_case_;
  }
  void scan_unicode(Scan& scan) {
    const Decoded decoded = decode_utf8(scan.text.substr(static_cast<size_t>(scan.at)));
    const BertCharacter& character = bert_character(decoded.code);
    if (!decoded.valid) ++scan.replaced;
    const bool kept = normalizer_.keeps(character), spaced = character.has(spaced_);
    if (kept && (spaced || character.has(BertCharacter::kPunctuation))) {
      flush(scan);
      take_alone(scan, decoded.length);
      return;
    }
    if (spaced) {
      flush(scan);
      scan.restart();
    }
    scan.chunk.changes |= !kept;
    scan.at += decoded.length;
    scan.more_bytes += decoded.length - 1;
    if (spaced) {
      if (!character.has(BertCharacter::kSpace)) flush(scan);  // spaces are dropped
      scan.restart();
    }
  }
  // The chunk ends here.
  void flush(const Scan& scan) {
    const Chunk& chunk = scan.chunk;
    if (chunk.byte_begin == scan.at) return;
    std::string_view part =
        scan.text.substr(static_cast<size_t>(chunk.byte_begin), static_cast<size_t>(scan.at - chunk.byte_begin));
    if (chunk.changes) return split_changing(part, chunk, scan.sink);
    if (chunk.folds) {
      word_.resize(part.size());
      for (size_t i = 0; i < part.size(); ++i) word_[i] = to_lower(part[i]);
      part = word_;
    }
    scan.sink.take(plain_word(part, scan.character() - chunk.char_begin, chunk.byte_begin, chunk.char_begin));
  }
  // Passes on the character at the scan's place as a word, unchanged.
  void take_alone(Scan& scan, int32_t length) {
    const std::string_view text = scan.text.substr(static_cast<size_t>(scan.at), static_cast<size_t>(length));
    scan.sink.take(plain_word(text, 1, scan.at, scan.character()));
    scan.at += length;
    scan.more_bytes += length - 1;
    scan.restart();
  }
  // A long chunk is normalised in stretches. An incomplete word waits in chars_ and is not searched again; if it is too
  // long to be split, only its two ends are kept.
  void split_changing(std::string_view chunk, const Chunk& begin, WordSink& sink) {
    chars_.clear();
    SourcePlace place{begin.byte_begin, begin.char_begin};
    const auto is_punctuation = [this](size_t i) {
      return bert_character(chars_[i].code).has(BertCharacter::kPunctuation);
    };
    int64_t left_out = 0;  // characters left out after the first of chars_
    size_t waiting = 0;    // of chars_, no punctuation
    while (!chunk.empty() && !sink.is_full()) {
      const size_t stretch = normalizer_.stretch_end(chunk, kStretchBytes);
      normalizer_.normalize(chunk.substr(0, stretch), place, chars_);
      chunk.remove_prefix(stretch);
      size_t first = 0;
      while (first < chars_.size()) {
        size_t last = std::max(first + 1, waiting);
        if (waiting > 0 || !is_punctuation(first)) {
          while (last < chars_.size() && !is_punctuation(last)) ++last;
          if (last == chars_.size() && !chunk.empty()) break;
        }
        take_chars(first, last, std::exchange(left_out, 0), sink);
        first = last;
        waiting = 0;
      }
      chars_.erase(chars_.begin(), chars_.begin() + static_cast<ptrdiff_t>(first));
      if (std::ssize(chars_) + left_out > std::max<int64_t>(max_word_chars_, 2)) {
        left_out += std::ssize(chars_) - 2;
        chars_ = {chars_.front(), chars_.back()};
      }
      waiting = chars_.size();
    }
  }
  void take_chars(size_t first, size_t last, int64_t left_out, WordSink& sink) {
    write_utf8(std::span(chars_).subspan(first, last - first), word_, spans_);
    sink.take({word_, static_cast<int64_t>(last - first) + left_out, spans_.data()});
  }

  const bool lower_case_;
  const int64_t max_word_chars_;  // the middle of a longer word may be left out
  BertNormalizer normalizer_;
  int spaced_;  // flags of the characters that are, or get, spaces around them
  std::vector<NormalizedChar> chars_;
  std::string word_;
  std::vector<SourceSpan> spans_;
};

// The complete result of BertNormalizer, for tokenizers that search it for added tokens; all others use BertSplitter,
// which is faster because it does not store the normalised text.
class BertNormalizedText {
 public:
  explicit BertNormalizedText(const TokenizerOptions& options)
      : space_cjk_(options.tokenize_chinese_chars), normalizer_(options.letter_case, strips_accents(options)) {}
  // Normalises a text whose front is at (byte, character) of the source. Returns the number of ill-formed sequences.
  int64_t normalize(std::string_view text, int32_t byte, int32_t character) {
    // The text between CJK characters is normalised stretch by stretch, because the spaces around these characters
    // separate marks.
    chars_.clear();
    SourcePlace place{byte, character};
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
    write_utf8(chars_, text_, spans_);
    return replaced;
  }

  const std::string& text() const { return text_; }
  // The source of bytes [begin, end) of text(); begin < end.
  SourceSpan source(int32_t begin, int32_t end) const {
    const SourceSpan &first = spans_[begin], &last = spans_[end - 1];
    return {first.byte_begin, last.byte_end, first.char_begin, last.char_end};
  }
  // The words of `bytes` bytes from `begin` on, split like BertPreTokenizer.
  void split(int32_t begin, size_t bytes, WordSink& sink) const {
    auto word = static_cast<size_t>(begin);
    const size_t end = word + bytes;
    int64_t chars = 0;
    const auto take = [&](size_t word_end) {
      if (chars > 0) {
        const std::string_view text = std::string_view(text_).substr(word, word_end - word);
        sink.take({text, chars, spans_.data() + word});
      }
      word = word_end;
      chars = 0;
    };
    for (size_t at = word; at < end && !sink.is_full();) {
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

 private:
  const bool space_cjk_;
  BertNormalizer normalizer_;
  std::vector<NormalizedChar> chars_;
  std::string text_;
  std::vector<SourceSpan> spans_;  // of each byte
};

std::string normalize(const TokenizerOptions& options, std::string_view text) {
  BertNormalizedText normalized(options);
  normalized.normalize(text, 0, 0);
  return normalized.text();
}

void encode_normalized(const AddedTokens& added, const TokenizerOptions& options, std::string_view text,
                       PieceWriter& writer, Encoding& out) {
  BertNormalizedText normalized(options);
  const auto encode_stretch = [&](std::string_view stretch, int32_t byte, int32_t character) {
    out.replaced_bytes += normalized.normalize(stretch, byte, character);
    writer.set_origin(0, 0);
    for_each_section(
        added.normalized(), normalized.text(),
        [&](std::string_view part, int32_t begin, int32_t) { normalized.split(begin, part.size(), writer); },
        [&](const FoundToken& found) {
          writer.take_added(found, normalized.source(found.place.byte_begin, found.place.byte_end));
        },
        [&] { return writer.is_full(); });
  };
  for_each_section(
      added.raw(), text,
      [&](std::string_view part, int32_t byte, int32_t character) {
        for (size_t begin = 0; begin < part.size() && !writer.is_full();) {
          const size_t end = added.may_divide() ? next_separator(part, begin + kStretchBytes) : part.size();
          std::string_view stretch = part.substr(begin, end - begin);
          encode_stretch(stretch, byte + static_cast<int32_t>(begin), character);
          for (; !stretch.empty(); ++character) take_utf8(stretch);
          begin = end;
        }
      },
      [&](const FoundToken& found) { writer.take_added(found, found.place); }, [&] { return writer.is_full(); });
}

}  // namespace

namespace pipelines {

const PipelineEntry& bert() {
  static const PipelineEntry entry = {
      .name = "bert",
      .classes = {{.name = "BertTokenizer",
                   .other_names = {"DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer",
                                   "SqueezeBertTokenizer", "LxmertTokenizer"},
                   .model_type = "bert"},
                  {.name = "MPNetTokenizer",
                   .model_type = "mpnet",
                   .special = roberta_names("[UNK]"),
                   .frame = roberta_template,
                   .trims_offsets = true,
                   .mask_strips_left = true}},
      .saved_class = "BertTokenizer",
      .make_splitter = [](const TokenizerOptions& options, const Vocabulary&, const PieceTrie&) -> SplitterPtr {
        return std::make_unique<BertSplitter>(options);
      },
      .normalize = normalize,
      .encode_normalized = encode_normalized};
  return entry;
}

}  // namespace pipelines
}  // namespace rf::text
