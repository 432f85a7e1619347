// Bytes that do not begin any token are skipped; at the other bytes the trie is searched.
#include "added_tokens/added_token_matcher.h"

#include <algorithm>
#include <utility>

#include "rf/io/utf8.h"
#include "unicode/regex_classes.h"

namespace rf::text {
namespace {

bool is_white_space(const Decoded& decoded) { return (regex_classes(decoded.code) & kWhiteSpaceClass) != 0; }

bool is_word(const Decoded& decoded) { return (regex_classes(decoded.code) & kWordClass) != 0; }

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const bool word_before = begin > 0 && is_word(decode_last_utf8(text.substr(0, begin)));
  return !word_before && (end == text.size() || !is_word(decode_utf8(text.substr(end))));
}

// Not beyond `front`.
size_t skip_space_before(std::string_view text, size_t begin, size_t front) {
  while (begin > front) {
    const Decoded last = decode_last_utf8(text.substr(front, begin - front));
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
  if (empty()) {
    only_front_ = form.front();
  } else if (only_front_ != form.front()) {
    only_front_.reset();
  }
  int32_t node = kNone;
  for (const char byte : form.substr(0, kWalk)) {
    const int32_t next = node == kNone ? first_[static_cast<uint8_t>(byte)] : child_of(node, byte);
    if (next != kNone) {
      node = next;
      continue;
    }
    const auto created = static_cast<int32_t>(nodes_.size());
    int32_t& list = node == kNone ? first_[static_cast<uint8_t>(byte)] : nodes_[static_cast<size_t>(node)].child;
    const int32_t sibling = list;
    list = created;
    nodes_.push_back({byte, kNone, sibling, nullptr, kNone});
    node = created;
  }
  if (form.size() > kWalk) {
    add_long(node, token, form);
  } else {
    nodes_[static_cast<size_t>(node)].token = &token;
  }
}

void AddedTokenMatcher::add_long(int32_t node, const AddedToken& token, std::string_view form) {
  const auto [known, is_new] = long_places_.try_emplace(form, long_forms_.size());
  if (!is_new) {
    long_forms_[known->second].token = &token;
    return;
  }
  int32_t& longer = nodes_[static_cast<size_t>(node)].longer;
  std::vector<uint32_t> borders(form.size());
  for (uint32_t i = 1, border = 0; i < form.size(); ++i) {
    while (border > 0 && form[i] != form[border]) border = borders[border - 1];
    if (form[i] == form[border]) ++border;
    borders[i] = border;
  }
  long_forms_.push_back({&token, form, std::move(borders), longer});
  longer = static_cast<int32_t>(long_forms_.size()) - 1;
}

size_t AddedTokenMatcher::skip(std::string_view text, size_t from) const {
  if (only_front_) return std::min(text.find(*only_front_, from), text.size());
  while (from < text.size() && first_[static_cast<uint8_t>(text[from])] == kNone) ++from;
  return from;
}

AddedTokenMatcher::Scan::Match AddedTokenMatcher::Scan::find(size_t from) {
  const std::vector<Node>& nodes = matcher_.nodes_;
  for (size_t begin = matcher_.skip(text_, from); begin < text_.size(); begin = matcher_.skip(text_, begin + 1)) {
    int32_t node = matcher_.first_[static_cast<uint8_t>(text_[begin])];
    Match match{nullptr, begin, begin};
    size_t at = begin;
    while (node != kNone) {
      const Node& here = nodes[static_cast<size_t>(node)];
      ++at;
      if (here.token != nullptr) match = {here.token, begin, at};
      for (int32_t i = here.longer; i != kNone; i = matcher_.long_forms_[static_cast<size_t>(i)].next) {
        const LongForm& longer = matcher_.long_forms_[static_cast<size_t>(i)];
        const size_t end = begin + longer.form.size();
        if (end > match.end && stands_at(static_cast<size_t>(i), begin)) match = {longer.token, begin, end};
      }
      node = at < text_.size() ? matcher_.child_of(node, text_[at]) : kNone;
    }
    steps_ += static_cast<int64_t>(at - begin);
    if (match.token != nullptr) return match;
  }
  return {nullptr, text_.size(), text_.size()};
}

// Whether the form occurs at `begin`, which never decreases from one call to the next.
bool AddedTokenMatcher::Scan::stands_at(size_t form, size_t begin) {
  if (searches_.empty()) searches_.resize(matcher_.long_forms_.size());
  const LongForm& wanted = matcher_.long_forms_[form];
  Search& search = searches_[form];
  if (search.at < begin) search = {begin, 0, search.found};
  while (search.at < text_.size() && (!search.found || *search.found < begin)) {
    const char byte = text_[search.at];
    while (search.matched > 0 && byte != wanted.form[search.matched]) {
      search.matched = wanted.borders[search.matched - 1];
      ++steps_;
    }
    if (byte == wanted.form[search.matched]) ++search.matched;
    ++search.at;
    ++steps_;
    if (search.matched < wanted.form.size()) continue;
    search.found = search.at - search.matched;
    search.matched = wanted.borders[search.matched - 1];
  }
  return search.found == begin;
}

size_t AddedTokenMatcher::Scan::space_end(size_t begin) {
  if (begin < spaces_begin_ || begin > spaces_end_) {
    spaces_begin_ = begin;
    spaces_end_ = skip_space_after(text_, begin);
    steps_ += static_cast<int64_t>(spaces_end_ - spaces_begin_);
  }
  return spaces_end_;
}

bool AddedTokenMatcher::Scan::next(Section& section) {
  if (waiting_) {
    section = *waiting_;
    waiting_.reset();
    return true;
  }
  while (!at_end_) {
    const Match match = find(from_);
    if (match.token == nullptr) {
      at_end_ = true;
      section = {nullptr, taken_, text_.size()};
      return taken_ < text_.size();
    }
    from_ = match.end;
    if (match.token->single_word && !stands_alone(text_, match.begin, match.end)) continue;
    size_t begin = match.begin;
    if (match.token->lstrip) begin = std::max(skip_space_before(text_, begin, taken_), taken_);
    steps_ += static_cast<int64_t>(std::max(match.begin, begin) - begin);
    const size_t end = match.token->rstrip ? space_end(match.end) : match.end;
    if (begin >= end) continue;  // rstrip of the previous section has taken all of it
    const Section found{match.token, begin, end, match.begin, match.end};
    section = found;
    if (taken_ < begin) {
      section = {nullptr, taken_, begin};
      waiting_ = found;
    }
    taken_ = found.end;
    return true;
  }
  return false;
}

}  // namespace rf::text
