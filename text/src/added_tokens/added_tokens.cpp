// Checks added tokens against the vocabulary, and searches a text for them: bytes that do not begin any token are
// skipped; at the other bytes the trie is searched.
#include "added_tokens/added_tokens.h"

#include <algorithm>
#include <utility>

#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "unicode/unicode.h"

namespace rf::text {
namespace {

constexpr std::string_view kSeparators[] = {" ", "\n", "，", "。"};

bool has_white_space(std::string_view text) {
  while (!text.empty()) {
    if (is_white_space(take_utf8(text).code)) return true;
  }
  return false;
}

// A form may have the spaces that BERT puts around CJK characters. White space of the text would be one more.
bool may_have_separator(const AddedToken& token) {
  const std::string& content = token.content;
  return token.lstrip || token.rstrip || has_white_space(content) || next_separator(content, 0) < content.size();
}

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
    return near.characters;
  }

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
};

bool is_word(const Decoded& decoded) { return (regex_classes(decoded.code) & kWordClass) != 0; }

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const bool word_before = begin > 0 && is_word(decode_last_utf8(text.substr(0, begin)));
  return !word_before && (end == text.size() || !is_word(decode_utf8(text.substr(end))));
}

// Not beyond `front`.
size_t skip_space_before(std::string_view text, size_t begin, size_t front) {
  while (begin > front) {
    const Decoded last = decode_last_utf8(text.substr(front, begin - front));
    if (!is_white_space(last.code)) break;
    begin -= static_cast<size_t>(last.length);
  }
  return begin;
}

size_t skip_space_after(std::string_view text, size_t end) {
  while (end < text.size()) {
    const Decoded next = decode_utf8(text.substr(end));
    if (!is_white_space(next.code)) break;
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

class AddedTokenMatcher::Scan {
 public:
  Scan(const AddedTokenMatcher& matcher, std::string_view text) : matcher_(matcher), text_(text) {}

  struct Match {
    const AddedToken* token;  // null: none
    size_t begin, end;
  };
  // Without a match, at the end of the text.
  Match find(size_t from) {
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
      if (match.token != nullptr) return match;
    }
    return {nullptr, text_.size(), text_.size()};
  }
  // The end of the white space that begins there.
  size_t space_end(size_t begin) {
    if (begin < spaces_begin_ || begin > spaces_end_) {
      spaces_begin_ = begin;
      spaces_end_ = skip_space_after(text_, begin);
    }
    return spaces_end_;
  }

 private:
  // State of the search for a long form: `matched` bytes of it end at byte `at`; it was last found at `found`.
  struct Search {
    size_t at = 0, matched = 0;
    std::optional<size_t> found{};
  };
  // Whether the form occurs at `begin`, which never decreases from one call to the next.
  bool stands_at(size_t form, size_t begin) {
    if (searches_.empty()) searches_.resize(matcher_.long_forms_.size());
    const LongForm& wanted = matcher_.long_forms_[form];
    Search& search = searches_[form];
    if (search.at < begin) search = {begin, 0, search.found};
    while (search.at < text_.size() && (!search.found || *search.found < begin)) {
      const char byte = text_[search.at];
      while (search.matched > 0 && byte != wanted.form[search.matched]) {
        search.matched = wanted.borders[search.matched - 1];
      }
      if (byte == wanted.form[search.matched]) ++search.matched;
      ++search.at;
      if (search.matched < wanted.form.size()) continue;
      search.found = search.at - search.matched;
      search.matched = wanted.borders[search.matched - 1];
    }
    return search.found == begin;
  }
  const AddedTokenMatcher& matcher_;
  const std::string_view text_;
  size_t spaces_begin_ = 1, spaces_end_ = 0;  // the last white space that was examined
  std::vector<Search> searches_;              // by long form; empty until needed
};

void for_each_section(const AddedTokenMatcher& matcher, std::string_view text,
                      const std::function<void(std::string_view part, int32_t byte, int32_t character)>& ordinary,
                      const std::function<void(const FoundToken&)>& added, const std::function<bool()>& is_full) {
  CharacterCounter characters(text);
  AddedTokenMatcher::Scan scan(matcher, text);
  size_t taken = 0;
  for (size_t from = 0; !is_full();) {
    const AddedTokenMatcher::Scan::Match match = scan.find(from);
    size_t begin = match.begin, end = match.end;
    if (match.token != nullptr) {
      from = match.end;
      if (match.token->single_word && !stands_alone(text, begin, end)) continue;
      if (match.token->lstrip) begin = std::max(skip_space_before(text, begin, taken), taken);
      if (match.token->rstrip) end = scan.space_end(end);
      if (begin >= end) continue;  // rstrip of the previous section has taken all of it
    }
    if (taken < begin) {
      ordinary(text.substr(taken, begin - taken), static_cast<int32_t>(taken), characters.before(taken));
    }
    if (match.token == nullptr || is_full()) return;
    const int32_t character = characters.before(begin);
    added({match.token->id,
           {static_cast<int32_t>(begin), static_cast<int32_t>(end), character, characters.before(end)},
           text.substr(begin, end - begin),
           text.substr(match.begin, match.end - match.begin)});
    taken = end;
  }
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary,
                         const std::function<std::string(std::string_view)>& normalize)
    : tokens_(std::move(tokens)) {
  std::ranges::sort(tokens_, {}, &AddedToken::id);
  forms_.reserve(tokens_.size());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    if (vocabulary.find(token.content) != token.id) {
      fail("added_tokens", "\"{}\" must have its id in the vocabulary, {}, got {}", token.content,
           vocabulary.find(token.content), token.id);
    }
    if (i > 0 && token.id == tokens_[i - 1].id) {
      fail("added_tokens", "every added token must occur once, got \"{}\" twice", token.content);
    }
    forms_.push_back(token.normalized ? normalize(token.content) : token.content);
    (token.normalized ? normalized_ : raw_).add(token, forms_.back());
    if (token.normalized && may_have_separator(token)) may_divide_ = false;
  }
}

size_t AddedTokens::index_of(int32_t id) const {
  const auto found = std::ranges::lower_bound(tokens_, id, {}, &AddedToken::id);
  const bool hit = found != tokens_.end() && found->id == id;
  return hit ? static_cast<size_t>(found - tokens_.begin()) : tokens_.size();
}

const std::string* AddedTokens::shown(int32_t id) const {
  const size_t i = index_of(id);
  return i == tokens_.size() ? nullptr : &forms_[i];
}

// `tokenizers` looks up the form shown among the special tokens in their original form.
bool AddedTokens::is_left_out(int32_t id) const {
  const size_t i = index_of(id);
  return i != tokens_.size() && tokens_[i].special && forms_[i] == tokens_[i].content;
}

size_t next_separator(std::string_view text, size_t from) {
  for (; from < text.size(); ++from) {
    const char first = text[from];
    for (const std::string_view separator : kSeparators) {
      if (first == separator.front() && text.substr(from).starts_with(separator)) return from;
    }
  }
  return text.size();
}

}  // namespace rf::text
