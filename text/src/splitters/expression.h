// A splitting expression of tokenizer.json, matched as `tokenizers` (Oniguruma, Ruby's syntax) does: alternatives in
// order, greedy repetition, the leftmost match. Published tokenizers need only a part of the syntax: characters and
// their escapes, ., [...] and [^...] with ranges, \s \S \d \D \p{..} \P{..} with general categories, (...), (?:...),
// (?i:...), |, the repetitions ? * + {n} {n,m} {n,} of characters and ? of groups, possessive ?+ *+ ++, lookaheads for
// one character, and $. Other syntax is refused.
//
// Time is linear in the text: each repetition without a limit that gave back characters in vain remembers the places
// where the rest of the expression failed, and is not tried there again. An expression that backtracks otherwise, over
// groups and counted repetitions, ends with an Error after some thousand steps per byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace rf::text {

class Expression {
 public:
  // Throws Error for other syntax, and for an expression that matches an empty text.
  explicit Expression(std::string_view pattern);

  struct Item {
    enum class Kind : uint8_t { kSet, kGroup, kAhead, kNotAhead, kLineEnd };
    Kind kind = Kind::kSet;
    bool possessive = false;
    bool rest_matches = false;  // whatever follows: the longest repetition is the match
    uint64_t set = 0;           // its bit
    size_t min = 1, max = 1;
    size_t run = 0;  // its number among the sets of the expression
    std::vector<std::vector<Item>> alternatives = {};
  };
  using Sequence = std::vector<Item>;

  struct Character {
    uint64_t sets;   // that contain it
    uint8_t length;  // bytes
  };
  Character character(std::string_view text, size_t at) const {
    const auto first = static_cast<uint8_t>(text[at]);
    return first < 0x80 ? Character{ascii_[first], 1} : other_character(text.substr(at));
  }
  // Alternatives that may begin with the character at that place.
  uint64_t candidates(uint64_t sets) const;
  uint64_t ascii_candidates(char first) const { return ascii_candidates_[static_cast<uint8_t>(first)]; }
  const std::vector<Sequence>& alternatives() const { return alternatives_; }
  size_t runs() const { return runs_; }

 private:
  friend class ExpressionReader;
  static constexpr size_t kCategoryCount = 30;
  Character other_character(std::string_view text) const;
  uint64_t sets_of(char32_t code) const;

  std::vector<Sequence> alternatives_;
  std::vector<uint64_t> first_;  // of each alternative, the sets that it may begin with
  size_t runs_ = 0;
  std::array<uint64_t, 128> ascii_{}, ascii_candidates_{};
  // Sets by general category, and by the places where ranges begin and end; `negated_` sets contain everything else.
  std::array<uint64_t, kCategoryCount> of_category_{};
  std::vector<std::pair<char32_t, uint64_t>> of_range_;  // from this code point to the next entry's
  uint64_t negated_ = 0;
};

// Finds the matches of an expression in one text after the other. Use one object per thread.
class ExpressionSearch {
 public:
  struct Match {
    size_t begin, end;
  };
  explicit ExpressionSearch(const Expression& expression) : expression_(&expression), runs_(expression.runs()) {}
  // The text is valid UTF-8 and outlives the search. The end of the text is an end for lookaheads and $.
  void begin(std::string_view text);
  // The first match that begins at or after `from`, which grows from call to call; at the text's end without one.
  // Throws Error after too many steps.
  Match next(size_t from);

 private:
  using Item = Expression::Item;
  struct Rest {  // of the sequence around a group
    const Item *item, *end;
    const Rest* outer;
  };
  // Characters of a set, and the first place from which the rest of the expression fails up to the end of the run.
  struct Run {
    size_t begin = 1, end = 0, failed = 0;
  };
  static constexpr size_t kFails = ~size_t{0};
  size_t match(const Item* item, const Item* end, size_t at, const Rest* outer);
  size_t match_group(const Item& group, const Item* next, const Item* end, size_t at, const Rest* outer);
  size_t match_bounded(const Item* item, const Item* end, size_t at, const Rest* outer);
  size_t match_run(const Item* item, const Item* end, size_t at, const Rest* outer);
  bool contains(uint64_t set, size_t at, size_t& length) const;
  void spend(size_t steps);

  const Expression* expression_;
  std::string_view text_;
  std::vector<Run> runs_;
  size_t steps_ = 0;  // that remain for the text
  bool has_runs_ = false;
};

}  // namespace rf::text
