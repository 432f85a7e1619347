// Every byte that no token begins with is stepped over; at the others the trie is walked.
#include "added_token_matcher.h"

#include <algorithm>

#include "regex_classes.h"
#include "utf8.h"

namespace rf::text {
namespace {

// The last code point of a text that is not empty; U+FFFD where the bytes before its end are no whole character.
Decoded decode_last(std::string_view text) {
  for (size_t length = 1; length <= std::min<size_t>(text.size(), 4); ++length) {
    const Decoded decoded = decode_utf8(text.substr(text.size() - length));
    if (decoded.valid && static_cast<size_t>(decoded.length) == length) return decoded;
  }
  return {kReplacement, 1, false};
}

bool is_white_space(const Decoded& decoded) {
  return (regex_classes(decoded.code) & kWhiteSpaceClass) != 0;
}

bool is_word(const Decoded& decoded) {
  return (regex_classes(decoded.code) & kWordClass) != 0;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const bool word_before = begin > 0 && is_word(decode_last(text.substr(0, begin)));
  return !word_before && (end == text.size() || !is_word(decode_utf8(text.substr(end))));
}

size_t skip_space_before(std::string_view text, size_t begin) {
  while (begin > 0) {
    const Decoded last = decode_last(text.substr(0, begin));
    if (!is_white_space(last)) break;
    begin -= static_cast<size_t>(last.length);
  }
  return begin;
}

size_t skip_space_after(std::string_view text, size_t end) {
  while (end < text.size()) {
    const Decoded next = decode_utf8(text.substr(end));
    if (!is_white_space(next)) break;
    end += static_cast<size_t>(next.length);
  }
  return end;
}

}  // namespace

int32_t AddedTokenMatcher::child_of(int32_t node, char byte) const {
  int32_t child = nodes_[static_cast<size_t>(node)].child;
  while (child != kNone && nodes_[static_cast<size_t>(child)].byte != byte) {
    child = nodes_[static_cast<size_t>(child)].sibling;
  }
  return child;
}

void AddedTokenMatcher::add(const AddedToken& token, std::string_view form) {
  if (form.empty()) return;
  int32_t node = kNone;
  for (const char byte : form) {
    const int32_t next = node == kNone ? first_[static_cast<uint8_t>(byte)] : child_of(node, byte);
    if (next != kNone) {
      node = next;
      continue;
    }
    const auto created = static_cast<int32_t>(nodes_.size());
    int32_t& list = node == kNone ? first_[static_cast<uint8_t>(byte)] : nodes_[static_cast<size_t>(node)].child;
    const int32_t sibling = list;
    list = created;
    nodes_.push_back({byte, kNone, sibling, nullptr});
    node = created;
  }
  nodes_[static_cast<size_t>(node)].token = &token;
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    Match match{nullptr, begin, begin};
    size_t at = begin;
    for (int32_t node = first_[static_cast<uint8_t>(text[begin])]; node != kNone;) {
      const AddedToken* token = nodes_[static_cast<size_t>(node)].token;
      ++at;
      if (token != nullptr) match = {token, begin, at};
      node = at < text.size() ? child_of(node, text[at]) : kNone;
    }
    if (match.token != nullptr) return match;
  }
  return {nullptr, text.size(), text.size()};
}

void AddedTokenMatcher::split(std::string_view text, std::vector<Section>& sections) const {
  sections.clear();
  size_t taken = 0;
  for (size_t from = 0;;) {
    const Match match = find(text, from);
    if (match.token == nullptr) break;
    from = match.end;
    if (match.token->single_word && !stands_alone(text, match.begin, match.end)) continue;
    const size_t begin = match.token->lstrip ? std::max(skip_space_before(text, match.begin), taken) : match.begin;
    const size_t end = match.token->rstrip ? skip_space_after(text, match.end) : match.end;
    if (taken < begin) sections.push_back({nullptr, taken, begin});
    sections.push_back({match.token, begin, end});
    taken = end;
  }
  if (taken < text.size()) sections.push_back({nullptr, taken, text.size()});
}

}  // namespace rf::text
