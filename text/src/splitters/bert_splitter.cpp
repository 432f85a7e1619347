// One scan divides the text at characters that always separate words: white space, punctuation and CJK characters. A
// chunk between them that normalisation does not change is a word; any other chunk is normalised and then split.
#include "splitters/bert_splitter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "rf/io/utf8.h"
#include "unicode/ascii.h"

namespace rf::text {
namespace {

constexpr size_t kSplitStretchBytes = size_t{1} << 14;

char fold(char c) { return ascii_class(c) == Ascii::kCapital ? static_cast<char>(c + ('a' - 'A')) : c; }

}  // namespace

BertSplitter::BertSplitter(const BertSplitterOptions& options)
    : options_(options),
      normalizer_(options.lower_case, options.strip_accents),
      spaced_(BertCharacter::kSpace | (options.space_cjk ? BertCharacter::kCjk : 0)) {}

int64_t BertSplitter::split(std::string_view text, WordSink& sink) {
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

// Skips ASCII letters and digits.
void BertSplitter::scan_word(Scan& scan) const {
  const auto size = static_cast<int32_t>(scan.text.size());
  bool capitals = false;
  while (scan.at < size) {
    const Ascii kind = ascii_class(scan.text[static_cast<size_t>(scan.at)]);
    if (kind > Ascii::kCapital) break;
    capitals |= kind == Ascii::kCapital;
    ++scan.at;
  }
  scan.chunk.folds |= capitals && options_.lower_case;
}

void BertSplitter::scan_unicode(Scan& scan) {
  const Decoded decoded = decode_utf8(scan.text.substr(static_cast<size_t>(scan.at)));
  const BertCharacter& character = bert_character(decoded.code);
  if (!decoded.valid) ++scan.replaced;
  const bool kept = normalizer_.keeps(character);
  const bool spaced = character.has(spaced_);
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

void BertSplitter::take_alone(Scan& scan, int32_t length) {
  const int32_t character = scan.character();
  scan.sink.take({scan.text.substr(static_cast<size_t>(scan.at), static_cast<size_t>(length)),
                  1,
                  nullptr,
                  {scan.at, scan.at, character, character},
                  Special::kNone});
  scan.at += length;
  scan.more_bytes += length - 1;
  scan.restart();
}

void BertSplitter::flush(const Scan& scan) {
  const Chunk& chunk = scan.chunk;
  if (chunk.byte_begin == scan.at) return;
  std::string_view part =
      scan.text.substr(static_cast<size_t>(chunk.byte_begin), static_cast<size_t>(scan.at - chunk.byte_begin));
  if (chunk.changes) {
    split_changing(part, chunk, scan.sink);
    return;
  }
  if (chunk.folds) {
    word_.resize(part.size());
    for (size_t i = 0; i < part.size(); ++i) word_[i] = fold(part[i]);
    part = word_;
  }
  scan.sink.take({part,
                  scan.character() - chunk.char_begin,
                  nullptr,
                  {chunk.byte_begin, chunk.byte_begin, chunk.char_begin, chunk.char_begin},
                  Special::kNone});
}

// A long chunk is normalised in stretches. An incomplete word waits in chars_ and is not searched again; if it is too
// long to be split, only its two ends are kept.
void BertSplitter::split_changing(std::string_view chunk, const Chunk& begin, WordSink& sink) {
  chars_.clear();
  SourcePlace place{begin.byte_begin, begin.char_begin};
  const auto is_punctuation = [this](size_t i) {
    return bert_character(chars_[i].code).has(BertCharacter::kPunctuation);
  };
  int64_t left_out = 0;  // characters left out after the first of chars_
  size_t waiting = 0;    // of chars_, no punctuation
  while (!chunk.empty() && !sink.is_full()) {
    const size_t stretch = normalizer_.stretch_end(chunk, kSplitStretchBytes);
    normalizer_.normalize(chunk.substr(0, stretch), place, chars_);
    chunk.remove_prefix(stretch);
    size_t first = 0;
    while (first < chars_.size()) {
      size_t last = std::max(first + 1, waiting);
      if (waiting > 0 || !is_punctuation(first)) {
        for (; last < chars_.size() && !is_punctuation(last); ++last) ++steps_;
        if (last == chars_.size() && !chunk.empty()) break;
      }
      ++steps_;
      take_chars(first, last, std::exchange(left_out, 0), sink);
      first = last;
      waiting = 0;
    }
    chars_.erase(chars_.begin(), chars_.begin() + static_cast<ptrdiff_t>(first));
    if (std::ssize(chars_) + left_out > std::max<int64_t>(options_.max_word_chars, 2)) {
      left_out += std::ssize(chars_) - 2;
      chars_ = {chars_.front(), chars_.back()};
    }
    waiting = chars_.size();
  }
}

void BertSplitter::take_chars(size_t first, size_t last, int64_t left_out, WordSink& sink) {
  write_utf8(std::span(chars_).subspan(first, last - first), word_, spans_);
  sink.take({word_, static_cast<int64_t>(last - first) + left_out, spans_.data(), {}, Special::kNone});
}

}  // namespace rf::text
