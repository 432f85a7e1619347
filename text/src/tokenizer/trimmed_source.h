// The sources of tokens without the white space at their ends, as the post-processors of `tokenizers` trim them: they
// count characters of the token, but skip characters of the source.
#pragma once

#include <cstdint>
#include <string_view>

#include "added_tokens/added_tokens.h"
#include "models/byte_alphabet.h"
#include "rf/io/utf8.h"
#include "rf/text/tokenizer.h"
#include "unicode/unicode.h"

namespace rf::text {

// Numbers of characters at the ends of a token that are excluded from its source.
struct Trimmed {
  int32_t leading = 0, trailing = 0;
};

inline bool is_trimmed(const Decoded& decoded) { return decoded.code == kSpaceLetter || is_white_space(decoded.code); }

inline int32_t leading_trimmed(std::string_view text) {
  int32_t characters = 0;
  while (!text.empty() && is_trimmed(take_utf8(text))) ++characters;
  return characters;
}

inline int32_t trailing_trimmed(std::string_view text) {
  int32_t characters = 0;
  while (!text.empty()) {
    const Decoded last = decode_last_utf8(text);
    if (!is_trimmed(last)) break;
    text.remove_suffix(static_cast<size_t>(last.length));
    ++characters;
  }
  return characters;
}

// The form is surrounded only by white space, which may belong to many sections, so it is examined only if the form
// contains other characters. At most two such sections share it.
inline Trimmed trimmed_of_added(const FoundToken& found) {
  const int32_t in_form = leading_trimmed(found.form), in_section = found.place.char_end - found.place.char_begin;
  if (in_form == count_characters(found.form)) return {in_section, in_section};
  return {leading_trimmed(found.section), trailing_trimmed(found.section)};
}

// `text` is the whole source. A single space at the front of a first token is treated as the added one.
inline void trim(const Trimmed& trimmed, bool is_first, const ByteLevelOptions& options, std::string_view text,
                 SourceSpan& source) {
  const auto character_length = [text](int32_t byte) {
    return decode_utf8(text.substr(static_cast<size_t>(byte))).length;
  };
  int32_t leading = trimmed.leading;
  const int32_t trailing = trimmed.trailing;
  if ((is_first || source.char_begin == 0) && options.trim_keeps_first_space && leading == 1) leading = 0;
  if (leading >= source.char_end - source.char_begin) {
    source.byte_begin = source.byte_end;
    source.char_begin = source.char_end;
    return;
  }
  for (; leading > 0; --leading) {
    source.byte_begin += character_length(source.byte_begin);
    ++source.char_begin;
  }
  if (trailing == 0 || source.char_end < trailing) return;
  // The ends of characters can only be found from the front: bytes that are not UTF-8 do not tell which one they
  // belong to.
  const int32_t kept = std::max(source.char_end - source.char_begin - trailing, 0);
  source.char_end = source.char_begin + kept;
  source.byte_end = source.byte_begin;
  for (int32_t i = 0; i < kept; ++i) source.byte_end += character_length(source.byte_end);
}

}  // namespace rf::text
