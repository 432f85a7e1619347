// Text to words: one scan divides the text at white space, CJK characters and special tokens into chunks; a chunk of
// printable ASCII is split directly, any other chunk is decoded, normalised and then split.
#include "splitters/legacy_splitter.h"

#include <algorithm>

#include "rf/io/utf8.h"
#include "unicode/ascii.h"

namespace rf::text {

LegacySplitter::LegacySplitter(Case letter_case, const SpecialNames& names)
    : case_(letter_case), specials_{names.pad, names.unk, names.cls, names.sep, names.mask} {
  for (size_t c = 0; c < fold_.size(); ++c) {
    const bool upper = c >= 'A' && c <= 'Z' && letter_case == Case::kLower;
    fold_[c] = static_cast<char>(upper ? c + ('a' - 'A') : c);
  }
}

Special LegacySplitter::special_at(std::string_view text) const {
  for (size_t i = 0; i < specials_.size(); ++i) {
    if (!specials_[i].empty() && text.starts_with(specials_[i])) return static_cast<Special>(i);
  }
  return Special::kNone;
}

// Special tokens are recognised here too, after control characters inside them were dropped.
Special LegacySplitter::special_in_chars() const {
  if (chars_.empty()) return Special::kNone;
  const auto same = [](const MappedChar& c, char letter) { return c.code == static_cast<char32_t>(letter); };
  for (size_t i = 0; i < specials_.size(); ++i) {
    if (std::ranges::equal(chars_, specials_[i], same)) return static_cast<Special>(i);
  }
  return Special::kNone;
}

int64_t LegacySplitter::split(std::string_view text, WordSink& sink) {
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

void LegacySplitter::scan_punctuation(Scan& scan) {
  const Special special = special_at(scan.text.substr(static_cast<size_t>(scan.at)));
  if (special == Special::kNone) {
    ++scan.at;
    return;
  }
  flush(scan, scan.chunk, scan.at);
  const std::string_view token = specials_[static_cast<size_t>(special)];
  const int32_t character = scan.at - scan.more_bytes;
  scan.sink.take(
      {token, static_cast<int64_t>(token.size()), nullptr, {scan.at, scan.at, character, character}, special});
  scan.restart(scan.at + static_cast<int32_t>(token.size()));
}

void LegacySplitter::scan_unicode(Scan& scan) {
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

void LegacySplitter::flush(const Scan& scan, const Chunk& chunk, int32_t byte_end) {
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

void LegacySplitter::split_plain(std::string_view chunk, const SourceSpan& begin, WordSink& sink) {
  folded_.resize(chunk.size());
  for (size_t i = 0; i < chunk.size(); ++i) folded_[i] = fold_[static_cast<uint8_t>(chunk[i])];
  const std::string_view folded = folded_;
  for (size_t first = 0; first < folded.size() && !sink.is_full();) {
    size_t last = first + 1;
    if (is_ascii_word(folded[first])) {
      while (last < folded.size() && is_ascii_word(folded[last])) ++last;
    }
    const auto shift = static_cast<int32_t>(first);
    const int32_t byte = begin.byte_begin + shift, character = begin.char_begin + shift;
    const std::string_view word = folded.substr(first, last - first);
    sink.take({word, static_cast<int64_t>(word.size()), nullptr, {byte, byte, character, character}, Special::kNone});
    first = last;
  }
}

// Decodes a chunk into chars_, without the characters that are dropped.
void LegacySplitter::read_chars(std::string_view chunk, const SourceSpan& begin) {
  chars_.clear();
  SourceSpan at = begin;
  while (!chunk.empty()) {
    const Decoded decoded = decode_utf8(chunk);
    at.byte_end = at.byte_begin + decoded.length;
    at.char_end = at.char_begin + 1;
    if ((unicode_record(decoded.code) & kDrop) == 0) chars_.push_back({decoded.code, 0, 0, at});
    at.byte_begin = at.byte_end;
    at.char_begin = at.char_end;
    chunk.remove_prefix(static_cast<size_t>(decoded.length));
  }
}

bool LegacySplitter::any(uint32_t flags) const {
  return std::any_of(chars_.begin(), chars_.end(),
                     [flags](const MappedChar& c) { return (unicode_record(c.code) & flags) != 0; });
}

// Each step runs only if a character of the chunk needs it.
void LegacySplitter::split_unicode(std::string_view chunk, const SourceSpan& begin, WordSink& sink) {
  read_chars(chunk, begin);
  normalizer_.clear_parts();
  if (any(kNfcUnstable)) normalizer_.nfc(chars_);
  if (const Special special = special_in_chars(); special != Special::kNone) {
    take_chars(0, chars_.size(), special, sink);
    return;
  }
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
    take_chars(first, last, Special::kNone, sink);
    first = last;
  }
}

void LegacySplitter::take_chars(size_t first, size_t last, Special special, WordSink& sink) {
  folded_.clear();
  spans_.clear();
  for (size_t i = first; i < last; ++i) {
    append_utf8(chars_[i].code, folded_);
    spans_.resize(folded_.size(), chars_[i].span);
  }
  sink.take({folded_, static_cast<int64_t>(last - first), spans_.data(), {}, special});
}

}  // namespace rf::text
