// Checks added tokens against the vocabulary and prepares the search for them.
#include "added_tokens/added_tokens.h"

#include <algorithm>

#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "unicode/unicode.h"

namespace rf::text {
namespace {

constexpr std::string_view kSeparators[] = {" ", "\n", "，", "。"};

bool has_white_space(std::string_view text) {
  while (!text.empty()) {
    if ((regex_classes(take_utf8(text).code) & kWhiteSpaceClass) != 0) return true;
  }
  return false;
}

// A form may have the spaces that BERT puts around CJK characters. White space of the text would be one more.
bool may_have_separator(const AddedToken& token) {
  const std::string& content = token.content;
  return token.lstrip || token.rstrip || has_white_space(content) || next_separator(content, 0) < content.size();
}

}  // namespace

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
