// Finds added tokens in a text like `tokenizers`' AddedVocabulary: the leftmost match, and the longest of several
// matches that begin there; matches do not overlap; a match of a token with single_word next to a word character is
// skipped; lstrip and rstrip extend a match by the white space around it. Time is linear in the text for any tokens: a
// search in the trie ends after kWalk bytes, and each longer token is searched in one pass over the text (Knuth, Morris
// and Pratt), which begins when its first kWalk bytes were found.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rf/text/added_token.h"

namespace rf::text {

// A part of the text: an added token, or the text between two added tokens.
struct Section {
  const AddedToken* token;              // null: ordinary text
  size_t begin, end;                    // bytes
  size_t form_begin = 0, form_end = 0;  // of an added token: start of its matched form, maybe before `begin`
};

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

// The sections of a text in order, which cover it. Sections are not empty, and each begins after the start of the
// previous section. White space that rstrip has taken may again be a token: then a section begins inside the previous
// one. With lstrip such a token would begin behind that white space; if nothing is left of it, it does not become a
// section.
class AddedTokenMatcher::Scan {
 public:
  Scan(const AddedTokenMatcher& matcher, std::string_view text) : matcher_(matcher), text_(text) {}
  bool next(Section& section);              // false: at the end
  int64_t steps() const { return steps_; }  // bytes compared, so far

 private:
  struct Match {
    const AddedToken* token;  // null: none
    size_t begin, end;
  };
  // State of the search for a long form: `matched` bytes of it end at byte `at`; it was last found at `found`.
  struct Search {
    size_t at = 0, matched = 0;
    std::optional<size_t> found{};
  };
  Match find(size_t from);
  bool stands_at(size_t form, size_t begin);
  size_t space_end(size_t begin);

  const AddedTokenMatcher& matcher_;
  const std::string_view text_;
  size_t from_ = 0, taken_ = 0;
  bool at_end_ = false;
  size_t spaces_begin_ = 1, spaces_end_ = 0;  // the last white space that was examined
  std::optional<Section> waiting_;
  std::vector<Search> searches_;  // by long form; empty until needed
  int64_t steps_ = 0;
};

}  // namespace rf::text
