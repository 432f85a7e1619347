// Text that normalisation leaves alone, nearly all of it, is encoded where it stands; other text is rewritten together
// with the source of each byte.
#include "byte_level_encoder.h"

#include <algorithm>

#include "byte_alphabet.h"
#include "gpt2_splitter.h"
#include "regex_classes.h"
#include "utf8.h"

namespace rf::text {
namespace {

bool is_trimmed(const Decoded& decoded) {
  return decoded.code == kSpaceLetter || (regex_classes(decoded.code) & kWhiteSpaceClass) != 0;
}

// Of a token of the model: bytes, of which only the ASCII space has the letter that is trimmed.
Trimmed trimmed_of_piece(std::string_view bytes) {
  const size_t first = std::min(bytes.find_first_not_of(' '), bytes.size());
  const size_t last = bytes.find_last_not_of(' ') + 1;  // 0 when there is nothing else
  return {static_cast<int32_t>(first), static_cast<int32_t>(bytes.size() - last)};
}

// Of an added token: characters.
Trimmed trimmed_of_added(std::string_view text) {
  Trimmed trimmed{0, 0};
  for (size_t i = 0; i < text.size(); ++trimmed.leading) {
    const Decoded decoded = decode_utf8(text.substr(i));
    if (!is_trimmed(decoded)) break;
    i += static_cast<size_t>(decoded.length);
  }
  for (size_t end = text.size(); end > 0; ++trimmed.trailing) {
    size_t begin = end - 1;
    while (begin > 0 && !begins_character(text[begin])) --begin;
    if (!is_trimmed(decode_utf8(text.substr(begin, end - begin)))) break;
    end = begin;
  }
  return trimmed;
}

}  // namespace

bool ByteLevelEncoder::stays_as_it_is(std::string_view part) const {
  for (size_t i = 0; i < part.size();) {
    if (static_cast<uint8_t>(part[i]) < 0x80) {
      ++i;
      continue;
    }
    const Decoded decoded = decode_utf8(part.substr(i));
    if (!decoded.valid || (options_.nfc && may_change_under_nfc(decoded.code))) return false;
    i += static_cast<size_t>(decoded.length);
  }
  return true;
}

void ByteLevelEncoder::normalize(std::string_view part, int32_t byte, int32_t character) {
  chars_.clear();
  while (!part.empty()) {
    const Decoded decoded = decode_utf8(part);
    if (!decoded.valid) ++replaced_;
    chars_.push_back({decoded.code, {byte, byte + decoded.length, character, character + 1}});
    byte += decoded.length;
    ++character;
    part.remove_prefix(static_cast<size_t>(decoded.length));
  }
  if (options_.nfc) nfc_.normalize(chars_);
  normalized_.clear();
  normalized_spans_.clear();
  for (const SourcedChar& c : chars_) {
    append_utf8(c.code, normalized_);
    normalized_spans_.resize(normalized_.size(), c.source);
  }
}

void ByteLevelEncoder::encode(std::string_view part, int32_t byte, int32_t character) {
  Mapped whole{part, nullptr, byte, character};
  if (!stays_as_it_is(part)) {
    normalize(part, byte, character);
    whole = {normalized_, normalized_spans_.data(), 0, 0};
  }
  if (added_.normalized().empty()) {
    encode_words(whole);
    return;
  }
  added_.normalized().split(whole.text, sections_);
  size_t at = 0;  // the byte that `character` is of
  for (const Section& section : sections_) {
    // A section may begin inside the one before it: white space that this one's rstrip has taken is looked at again.
    if (section.begin >= at) {
      character += count_characters(whole.text.substr(at, section.begin - at));
    } else {
      character -= count_characters(whole.text.substr(section.begin, at - section.begin));
    }
    at = section.begin;
    const std::string_view text = whole.text.substr(section.begin, section.end - section.begin);
    const Mapped mapped = {text, whole.spans == nullptr ? nullptr : whole.spans + section.begin,
                           byte + static_cast<int32_t>(section.begin), character};
    if (section.token == nullptr) {
      encode_words(mapped);
    } else {
      append_added(section.token->id, source_of(mapped), text);
    }
  }
}

// The space has the source of the first character, as that itself has.
void ByteLevelEncoder::put_space_in_front(const Mapped& mapped) {
  spaced_.assign(1, ' ').append(mapped.text);
  spaced_spans_.clear();
  if (mapped.spans != nullptr) {
    spaced_spans_.push_back(mapped.spans[0]);
    spaced_spans_.insert(spaced_spans_.end(), mapped.spans, mapped.spans + mapped.text.size());
    return;
  }
  SourceSpan span{mapped.byte, mapped.byte, mapped.character, mapped.character};
  for (size_t i = 0; i < mapped.text.size();) {
    const auto length = static_cast<size_t>(decode_utf8(mapped.text.substr(i)).length);
    span = {span.byte_end, span.byte_end + static_cast<int32_t>(length), span.char_end, span.char_end + 1};
    if (i == 0) spaced_spans_.push_back(span);
    spaced_spans_.resize(spaced_spans_.size() + length, span);
    i += length;
  }
}

void ByteLevelEncoder::encode_words(const Mapped& mapped) {
  if (mapped.text.empty()) return;
  if (options_.add_prefix_space && mapped.text.front() != ' ') {
    put_space_in_front(mapped);
    cut_words({spaced_, spaced_spans_.data(), 0, 0});
  } else {
    cut_words(mapped);
  }
}

void ByteLevelEncoder::cut_words(const Mapped& words) {
  Mapped rest = words;
  while (!rest.text.empty()) {
    const Gpt2Word word = options_.use_regex ? next_gpt2_word(rest.text, 0) : Gpt2Word{rest.text.size(), false};
    const std::string_view text = rest.text.substr(0, word.end);
    model_.cut(text, pieces_, workspace_);
    const auto bytes = static_cast<int32_t>(text.size());
    if (rest.spans != nullptr) {
      append_mapped(text, rest.spans);
      rest.spans += text.size();
    } else if (word.ascii) {
      append_ascii(text, rest.byte, rest.character);
      rest.character += bytes;
    } else {
      append_unicode(text, rest.byte, rest.character);
      rest.character += count_characters(text);
    }
    rest.byte += bytes;
    rest.text.remove_prefix(text.size());
  }
}

SourceSpan ByteLevelEncoder::source_of(const Mapped& mapped) const {
  const size_t bytes = mapped.text.size();
  if (mapped.spans == nullptr) {
    return {mapped.byte, mapped.byte + static_cast<int32_t>(bytes), mapped.character,
            mapped.character + count_characters(mapped.text)};
  }
  const SourceSpan &first = mapped.spans[0], &last = mapped.spans[bytes - 1];
  return {first.byte_begin, last.byte_end, first.char_begin, last.char_end};
}

void ByteLevelEncoder::append_mapped(std::string_view word, const SourceSpan* spans) {
  size_t at = 0;
  for (const BytePairModel::Piece& piece : pieces_) {
    const SourceSpan &first = spans[at], &last = spans[at + piece.length - 1];
    append_piece(piece.id, {first.byte_begin, last.byte_end, first.char_begin, last.char_end},
                 word.substr(at, piece.length), at == 0);
    at += piece.length;
  }
}

void ByteLevelEncoder::append_ascii(std::string_view word, int32_t byte, int32_t character) {
  size_t at = 0;
  for (const BytePairModel::Piece& piece : pieces_) {
    const auto begin = static_cast<int32_t>(at), end = static_cast<int32_t>(at + piece.length);
    append_piece(piece.id, {byte + begin, byte + end, character + begin, character + end},
                 word.substr(at, piece.length), at == 0);
    at += piece.length;
  }
}

void ByteLevelEncoder::append_unicode(std::string_view word, int32_t byte, int32_t character) {
  size_t at = 0;
  for (const BytePairModel::Piece& piece : pieces_) {
    const std::string_view slice = word.substr(at, piece.length);
    size_t begin = at, end = at + piece.length;  // of the characters that it has a part of
    while (!begins_character(word[begin])) --begin;
    while (end < word.size() && !begins_character(word[end])) ++end;
    const int32_t first = begin == at ? character : character - 1;
    character += count_characters(slice);
    append_piece(piece.id, {byte + static_cast<int32_t>(begin), byte + static_cast<int32_t>(end), first, character},
                 slice, at == 0);
    at += piece.length;
  }
}

void ByteLevelEncoder::append_added(int32_t id, const SourceSpan& source, std::string_view slice) {
  append(id, source, options_.trim_offsets ? trimmed_of_added(slice) : Trimmed{}, true);
}

void ByteLevelEncoder::append_piece(int32_t id, const SourceSpan& source, std::string_view slice, bool starts_word) {
  append(id, source, options_.trim_offsets ? trimmed_of_piece(slice) : Trimmed{}, starts_word);
}

void ByteLevelEncoder::append(int32_t id, SourceSpan source, const Trimmed& trimmed, bool starts_word) {
  if (trimmed.leading + trimmed.trailing > 0) trim(trimmed, source);
  out_.ids.push_back(id);
  out_.byte_begin.push_back(source.byte_begin);
  out_.byte_end.push_back(source.byte_end);
  out_.char_begin.push_back(source.char_begin);
  out_.char_end.push_back(source.char_end);
  out_.starts_word.push_back(starts_word ? 1 : 0);
}

// Counts characters of the token but steps over characters of the source, as `tokenizers` does. The one space in front
// of a first token is taken for the one that was put there.
void ByteLevelEncoder::trim(const Trimmed& trimmed, SourceSpan& source) const {
  int32_t leading = trimmed.leading;
  const int32_t trailing = trimmed.trailing;
  const bool is_first = out_.size() == first_token_ || source.char_begin == 0;
  if (is_first && options_.trim_keeps_first_space && leading == 1) leading = 0;
  for (; leading > 0 && source.char_begin < source.char_end; --leading) {
    source.byte_begin += character_length(source.byte_begin);
    ++source.char_begin;
  }
  if (trailing == 0 || source.char_end < trailing) return;
  // Where characters end is found from the front alone: bytes that are not UTF-8 do not say to which one they belong.
  const int32_t kept = std::max(source.char_end - source.char_begin - trailing, 0);
  if (source.char_begin >= source.char_end) return;
  source.char_end = source.char_begin + kept;
  source.byte_end = source.byte_begin;
  for (int32_t i = 0; i < kept; ++i) source.byte_end += character_length(source.byte_end);
}

int32_t ByteLevelEncoder::character_length(int32_t byte) const {
  return decode_utf8(source_.substr(static_cast<size_t>(byte))).length;
}

}  // namespace rf::text
