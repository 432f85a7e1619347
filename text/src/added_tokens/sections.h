// The sections of a text with their places in it, in bytes and in characters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "added_tokens/added_token_matcher.h"
#include "rf/io/utf8.h"
#include "unicode/unicode.h"

namespace rf::text {

// Computes the number of characters before a byte, counted from the nearer of two earlier requests, because white space
// that rstrip and lstrip take may be requested repeatedly.
class CharacterCounter {
 public:
  explicit CharacterCounter(std::string_view text) : text_(text) {}
  int32_t before(size_t byte) {
    const auto distance = [byte](const Place& place) {
      return std::max(place.byte, byte) - std::min(place.byte, byte);
    };
    Place& near = distance(first_) <= distance(second_) ? first_ : second_;
    const int32_t between = count(std::min(near.byte, byte), std::max(near.byte, byte));
    near = {byte, near.byte <= byte ? near.characters + between : near.characters - between};
    steps_ += between;
    return near.characters;
  }
  int64_t steps() const { return steps_; }  // characters counted, so far

 private:
  struct Place {
    size_t byte = 0;
    int32_t characters = 0;  // before it
  };
  int32_t count(size_t from, size_t to) const {
    int32_t characters = 0;
    for (; from < to; ++characters) from += static_cast<size_t>(decode_utf8(text_.substr(from)).length);
    return characters;
  }

  const std::string_view text_;
  Place first_, second_;
  int64_t steps_ = 0;
};

struct FoundToken {
  int32_t id;
  SourceSpan place;          // of the section
  std::string_view section;  // with the white space that lstrip and rstrip took
  std::string_view form;     // the token alone
};

// Divides the text at the added tokens: calls ordinary(part, byte, character) for each part between them, with its
// start, and added(found) for each added token, until is_full(). Returns its steps: bytes compared and characters
// counted.
template <class Ordinary, class Added, class Full>
int64_t for_each_section(const AddedTokenMatcher& matcher, std::string_view text, Ordinary ordinary, Added added,
                         Full is_full) {
  CharacterCounter characters(text);
  AddedTokenMatcher::Scan scan(matcher, text);
  for (Section section{}; !is_full() && scan.next(section);) {
    const auto begin = static_cast<int32_t>(section.begin), end = static_cast<int32_t>(section.end);
    const int32_t character = characters.before(section.begin);
    const std::string_view part = text.substr(section.begin, section.end - section.begin);
    if (section.token == nullptr) {
      ordinary(part, begin, character);
    } else {
      const std::string_view form = text.substr(section.form_begin, section.form_end - section.form_begin);
      added(FoundToken{section.token->id, {begin, end, character, characters.before(section.end)}, part, form});
    }
  }
  return scan.steps() + characters.steps();
}

}  // namespace rf::text
