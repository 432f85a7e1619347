// Finds added tokens in a text as `tokenizers`' AddedVocabulary does: the leftmost match, of several that begin there
// the longest; matches do not overlap; a token with single_word that touches a word is passed over; lstrip and rstrip
// widen a match by the white space around it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "rf/text/added_token.h"

namespace rf::text {

// A stretch of the text: an added token, or what lies between two of them.
struct Section {
  const AddedToken* token;  // null: ordinary text
  size_t begin, end;        // bytes
};

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() { first_.fill(kNone); }
  // The token must outlive the matcher. `form` is what to look for: the content, or its normalised form. An empty form
  // is never found; of two tokens with one form the later is.
  void add(const AddedToken& token, std::string_view form);
  bool empty() const { return nodes_.empty(); }

  // Sections that cover the text, none of them empty; of an empty text there is none.
  void split(std::string_view text, std::vector<Section>& sections) const;

 private:
  static constexpr int32_t kNone = -1;
  // A byte trie: children of a node are a list of siblings.
  struct Node {
    char byte;
    int32_t child, sibling;
    const AddedToken* token;  // that ends here
  };
  struct Match {
    const AddedToken* token;  // null: none
    size_t begin, end;
  };
  Match find(std::string_view text, size_t from) const;
  int32_t child_of(int32_t node, char byte) const;

  std::array<int32_t, 256> first_;  // by first byte
  std::vector<Node> nodes_;
};

}  // namespace rf::text
