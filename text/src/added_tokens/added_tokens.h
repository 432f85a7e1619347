// The added tokens of a tokenizer, which are applied before its splitter: they divide a text into sections, and only
// sections that are not added tokens are split further.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "added_tokens/added_token_matcher.h"

namespace rf::text {

class AddedTokens {
 public:
  // Tokens with an id each. Throws Error for a token that the vocabulary does not contain under that id, and for
  // content that occurs twice. `normalize` returns the form in which a `normalized` token is searched.
  AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary,
              const std::function<std::string(std::string_view)>& normalize);
  AddedTokens(const AddedTokens&) = delete;
  AddedTokens& operator=(const AddedTokens&) = delete;

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  // The text of a token in decode(): the normalised form of a `normalized` one. Null if the id is not an added token.
  const std::string* shown(int32_t id) const;
  bool is_left_out(int32_t id) const;  // when special tokens are skipped
  // Searches the original text, for the tokens that are not `normalized`.
  const AddedTokenMatcher& raw() const { return raw_; }
  const AddedTokenMatcher& normalized() const { return normalized_; }  // searches the normalised text
  // Whether a text may be divided before any separator and searched for `normalized` tokens in parts: no such token
  // contains a separator or white space, or takes white space around it.
  bool may_divide() const { return may_divide_; }

 private:
  size_t index_of(int32_t id) const;  // tokens_.size() if absent

  std::vector<AddedToken> tokens_;  // by id
  std::vector<std::string> forms_;  // the form in which each is searched
  AddedTokenMatcher raw_, normalized_;
  bool may_divide_ = true;
};

// The first byte at or after `from` where a separator begins: a space, a line feed, "，" or "。". In words of BERT or
// of a byte-level pattern, a separator never follows a letter, and normalisation changes nothing across its front. The
// text's size without a separator.
size_t next_separator(std::string_view text, size_t from);

}  // namespace rf::text
