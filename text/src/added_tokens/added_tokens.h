// The added tokens of a tokenizer, which are applied before its splitter: they divide a text into sections, and only
// sections that are not added tokens are split further.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rf/text/tokenizer.h"
#include "unicode/unicode.h"

namespace rf::text {

// Finds added tokens in a text like `tokenizers`' AddedVocabulary: the leftmost match, and the longest of several
// matches that begin there; matches do not overlap; a match of a token with single_word next to a word character is
// skipped; lstrip and rstrip extend a match by the white space around it. Time is linear in the text for any tokens: a
// search in the trie ends after kWalk bytes, and each longer token is searched in one pass over the text (Knuth, Morris
// and Pratt), which begins when its first kWalk bytes were found.
class AddedTokenMatcher {
 public:
  class Scan;

  AddedTokenMatcher() { first_.fill(kNone); }
  // Token and form must outlive the matcher. `form` is the text to search: the content, or its normalised form. An
  // empty form is never found; of two tokens with the same form the later one is.
  void add(const AddedToken& token, std::string_view form);
  bool empty() const { return nodes_.empty(); }

 private:
  static constexpr int32_t kNone = -1;
  static constexpr size_t kWalk = 64;
  // A byte trie: children of a node are a list of siblings.
  struct Node {
    char byte;
    int32_t child, sibling;
    const AddedToken* token;  // that ends here
    int32_t longer;           // the first of the long forms that begin with the bytes up to here
  };
  struct LongForm {
    const AddedToken* token;
    std::string_view form;
    std::vector<uint32_t> borders;  // of each front of the form, the longest proper front that it ends with
    int32_t next;                   // next long form with the same first kWalk bytes
  };
  int32_t child_of(int32_t node, char byte) const;
  void add_long(int32_t node, const AddedToken& token, std::string_view form);
  // The first byte at or after `from` that begins a form; the text's size without one.
  size_t skip(std::string_view text, size_t from) const;

  std::array<int32_t, 256> first_;  // by first byte
  std::optional<char> only_front_;  // the first byte of all forms, when they have the same
  std::vector<Node> nodes_;
  std::vector<LongForm> long_forms_;
  std::unordered_map<std::string_view, size_t> long_places_;  // of forms in long_forms_
};

struct FoundToken {
  int32_t id;
  SourceSpan place;          // of the section
  std::string_view section;  // with the white space that lstrip and rstrip took
  std::string_view form;     // the token alone
};

// Divides the text into sections that cover it, added tokens and the parts between them. Sections are not empty, and
// each begins after the start of the previous section. White space that rstrip has taken may again be a token: then a
// section begins inside the previous one. With lstrip such a token would begin behind that white space; if nothing is
// left of it, it does not become a section. Calls ordinary(part, byte, character) for each part between them, with its
// start, and added(found) for each added token, until is_full().
void for_each_section(const AddedTokenMatcher& matcher, std::string_view text,
                      const std::function<void(std::string_view part, int32_t byte, int32_t character)>& ordinary,
                      const std::function<void(const FoundToken&)>& added, const std::function<bool()>& is_full);

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
