// Checks added tokens against the vocabulary and prepares the search for them.
#include "added_tokens.h"

#include <algorithm>

#include "rf/io/error.h"

namespace rf::text {

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary,
                         const std::function<std::string(std::string_view)>& normalize)
    : tokens_(std::move(tokens)) {
  std::ranges::sort(tokens_, {}, &AddedToken::id);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    if (vocabulary.find(token.content) != token.id) {
      fail("added_tokens", "\"{}\" must have its id in the vocabulary, {}, got {}", token.content,
           vocabulary.find(token.content), token.id);
    }
    if (i > 0 && token.id == tokens_[i - 1].id) {
      fail("added_tokens", "every added token must occur once, got \"{}\" twice", token.content);
    }
    if (token.normalized) {
      normalized_.add(token, normalize(token.content));
    } else {
      raw_.add(token, token.content);
    }
  }
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto found = std::ranges::lower_bound(tokens_, id, {}, &AddedToken::id);
  return found == tokens_.end() || found->id != id ? nullptr : &*found;
}

std::vector<AddedToken> special_tokens(const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  for (const SpecialRole role : kSpecialRoles) {
    const std::string& content = name_of(vocabulary.special_names(), role);
    const auto same = [&content](const AddedToken& token) { return token.content == content; };
    if (content.empty() || std::ranges::any_of(tokens, same)) continue;
    tokens.push_back({.content = content, .id = vocabulary.find(content), .special = true});
  }
  return tokens;
}

}  // namespace rf::text
