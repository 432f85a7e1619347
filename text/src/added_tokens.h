// The added tokens of a tokenizer, in front of its splitter: they cut a text into sections, of which only those that
// are no added token are split and cut further.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "added_token_matcher.h"
#include "rf/text/added_token.h"
#include "rf/text/vocabulary.h"

namespace rf::text {

class AddedTokens {
 public:
  // Tokens with an id each. Throws Error for one that the vocabulary does not have under that id, and for content that
  // occurs twice.
  // `normalize` gives the form in which a `normalized` token is looked for.
  AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary,
              const std::function<std::string(std::string_view)>& normalize);
  AddedTokens(const AddedTokens&) = delete;
  AddedTokens& operator=(const AddedTokens&) = delete;

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  // How a token is shown when it is decoded: a `normalized` one in its normalised form. Null when the id is no added
  // token.
  const std::string* shown(int32_t id) const;
  bool is_left_out(int32_t id) const;  // when special tokens are skipped
  // What to look for in the original text: the tokens that are not `normalized`.
  const AddedTokenMatcher& raw() const { return raw_; }
  const AddedTokenMatcher& normalized() const { return normalized_; }  // what to look for in the normalised text

 private:
  size_t index_of(int32_t id) const;  // tokens_.size() when there is none

  std::vector<AddedToken> tokens_;  // by id
  std::vector<std::string> forms_;  // what each is looked for as
  AddedTokenMatcher raw_, normalized_;
};

// The special tokens of the vocabulary, as `transformers` adds them.
std::vector<AddedToken> special_tokens(const Vocabulary& vocabulary);

}  // namespace rf::text
