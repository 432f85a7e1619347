// Reads an expression; expression.h has the syntax.
#include <algorithm>
#include <map>
#include <string>

#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"
#include "splitters/expression.h"
#include "unicode/unicode.h"

namespace rf::text {
namespace {

constexpr size_t kMaxSets = 64, kUnlimited = ~size_t{0};
constexpr size_t kMaxRepeated = 1000;
// For the stack and the tables; the longest published expressions have 2 kB.
constexpr size_t kMaxBytes = 8192, kMaxItems = 512, kMaxShown = 200;

// The characters of [...], of an escape or of one character.
struct Set {
  uint32_t categories = 0;
  std::vector<std::pair<char32_t, char32_t>> ranges = {};  // first and last
  bool negated = false;
  bool operator==(const Set&) const = default;

  void add(const Set& other) {
    categories |= other.categories;
    ranges.insert(ranges.end(), other.ranges.begin(), other.ranges.end());
  }
};

Set one(char32_t c) { return {0, {{c, c}}, false}; }

// The categories of \p{name}: one, or all that begin with a letter.
uint32_t categories_of(std::string_view name) {
  uint32_t found = 0;
  for (size_t i = 0; i < std::size(kCategories); ++i) {
    const bool fits = name.size() == 1 ? kCategories[i].starts_with(name) : kCategories[i] == name;
    found |= uint32_t{fits} << i;
  }
  return found;
}

bool is_ascii_letter(char32_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z' && c < 0x80; }

}  // namespace

class ExpressionReader {
 public:
  ExpressionReader(Expression& out, std::string_view pattern) : out_(out), pattern_(pattern), rest_(pattern) {
    if (!is_utf8(pattern)) refuse("must be UTF-8");
    if (pattern.size() > kMaxBytes) refuse("must have at most 8192 bytes");
    out.alternatives_ = alternatives();
    if (!rest_.empty()) refuse("must close only groups that it opens");
    if (out.alternatives_.size() > kMaxSets) refuse("must have at most 64 alternatives");
    for (Expression::Sequence& each : out.alternatives_) {
      mark_rests(each, true);
      bool may_be_empty = true;
      out.first_.push_back(first_of(each, may_be_empty));
      if (may_be_empty) refuse("must not match an empty text");
    }
    fill_tables();
  }

 private:
  using Item = Expression::Item;
  using Sequence = Expression::Sequence;

  [[noreturn]] void refuse(std::string_view rule) const {
    const bool is_long = pattern_.size() > kMaxShown;
    fail("expression", "a splitting expression {}, got \"{}\" at character {}", rule,
         is_long ? io::escaped(pattern_, kMaxShown) : std::string(pattern_),
         count_characters(pattern_.substr(0, pattern_.size() - rest_.size())) + 1);
  }
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  std::vector<Sequence> alternatives() {
    std::vector<Sequence> found;
    const std::string before = previous_;
    do {
      previous_ = before;
      found.emplace_back();
      while (!rest_.empty() && rest_.front() != '|' && rest_.front() != ')') found.back().push_back(item());
    } while (take("|"));
    return found;
  }
  Item item() {
    if (++items_ > kMaxItems) refuse("must have at most 512 characters, sets and groups");
    if (rest_.starts_with("(")) return group();
    if (take("$")) return {.kind = Item::Kind::kLineEnd};
    Item read = set_item(atom());
    repeat(read);
    read.run = out_.runs_++;
    return read;
  }
  Item set_item(Set set) {
    if (folds_) fold(set);
    return {.set = bit_of(set)};
  }
  Item group() {
    const bool ahead = take("(?="), not_ahead = !ahead && take("(?!");
    const bool folded = folds_;
    if (!ahead && !not_ahead) {
      if (take("(?i:")) {
        folds_ = true;
      } else if (!take("(?:")) {
        take("(");
        if (rest_.starts_with("?")) refuse("must have groups (...), (?:...), (?i:...), (?=...) and (?!...) only");
      }
    }
    Item read{.kind = ahead ? Item::Kind::kAhead : not_ahead ? Item::Kind::kNotAhead : Item::Kind::kGroup};
    if (read.kind == Item::Kind::kGroup) {
      read.alternatives = alternatives();
    } else {
      read.set = set_item(atom()).set;
    }
    if (!take(")")) refuse(ahead || not_ahead ? "must look ahead at one character" : "must close its groups");
    folds_ = folded;
    previous_ = "fs";  // any of its alternatives
    if (read.kind == Item::Kind::kGroup && take("?")) read.min = 0;
    if (!rest_.empty() && std::string_view("?*+{").find(rest_.front()) != std::string_view::npos) {
      refuse("must repeat characters, not groups");
    }
    return read;
  }
  void repeat(Item& read) {
    const size_t before = rest_.size();
    if (take("?")) {
      read.min = 0;
    } else if (take("*")) {
      read.min = 0;
      read.max = kUnlimited;
    } else if (take("+")) {
      read.max = kUnlimited;
    } else if (take("{")) {
      read.min = read.max = number();
      if (take(",")) read.max = rest_.starts_with("}") ? kUnlimited : number();
      if (!take("}") || read.max < std::max<size_t>(read.min, 1)) refuse("must repeat by {n}, {n,m} or {n,}");
      if (!rest_.empty() && std::string_view("?*+{").find(rest_.front()) != std::string_view::npos) {
        refuse("must not repeat a repetition");
      }
      return;
    }
    if (rest_.size() == before) return;
    read.possessive = take("+");
    if (!rest_.empty() && std::string_view("?*+{").find(rest_.front()) != std::string_view::npos) {
      refuse("must not have lazy or repeated repetitions");
    }
  }
  size_t number() {
    size_t value = 0, digits = 0;
    while (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') {
      value = 10 * value + static_cast<size_t>(rest_.front() - '0');
      rest_.remove_prefix(1);
      if (++digits > 4 || value > kMaxRepeated) refuse("must repeat at most 1000 times");
    }
    if (digits == 0) refuse("must repeat by {n}, {n,m} or {n,}");
    return value;
  }
  Set atom() {
    if (rest_.empty()) refuse("must have a character");
    if (take("[")) return list();
    if (take(".")) return {0, {{'\n', '\n'}}, true};
    if (rest_.front() == '\\') return escape();
    if (std::string_view("?*+{^]}").find(rest_.front()) != std::string_view::npos) {
      refuse("must have a character or a set before ?, *, + and {, and escape ^, ] and }");
    }
    return one(take_utf8(rest_).code);
  }
  Set escape() {
    take("\\");
    if (rest_.empty()) refuse("must not end with \\");
    const char32_t c = take_utf8(rest_).code;
    switch (c) {
      case 'n': return one('\n');
      case 'r': return one('\r');
      case 't': return one('\t');
      case 's':
      case 'S': return {categories_of("Z"), {{'\t', '\r'}, {0x85, 0x85}}, c == 'S'};
      case 'd':
      case 'D': return {categories_of("Nd"), {}, c == 'D'};
      case 'p':
      case 'P': return property(c == 'P');
      default: break;
    }
    if (c >= 0x80 || is_ascii_letter(c) || (c >= '0' && c <= '9')) {
      refuse("must have the escapes \\n \\r \\t \\s \\S \\d \\D \\p{..} \\P{..} and those of punctuation only");
    }
    return one(c);
  }
  Set property(bool negated) {
    const size_t end = rest_.find('}');
    const uint32_t categories =
        take("{") && end != std::string_view::npos ? categories_of(rest_.substr(0, end - 1)) : 0;
    if (categories == 0) refuse("must name general categories, such as L and Lu, in \\p{..}");
    rest_.remove_prefix(end);
    return {categories, {}, negated};
  }
  Set list() {
    Set set;
    const bool negated = take("^");
    for (bool is_first = true; !take("]"); is_first = false) {
      if (rest_.empty()) refuse("must close its [");
      if (rest_.starts_with("[") || rest_.starts_with("&&")) refuse("must not have sets or && inside [...]");
      const bool is_escape = rest_.front() == '\\';
      const char32_t literal = is_escape ? 0 : take_utf8(rest_).code;
      if (literal == '-' && !is_first && !rest_.starts_with("]")) refuse("must have - first or last in [...], or \\-");
      Set next = is_escape ? escape() : one(literal);
      if (next.negated) refuse("must not have \\S, \\D and \\P inside [...]");
      const bool is_one = next.categories == 0 && next.ranges.size() == 1;
      if (rest_.size() > 1 && rest_.front() == '-' && rest_[1] != ']') {
        rest_.remove_prefix(1);
        const Set last = rest_.front() == '\\' ? escape() : one(take_utf8(rest_).code);
        const bool fits = is_one && last.categories == 0 && last.ranges.size() == 1;
        if (!fits || last.ranges[0].first < next.ranges[0].first) refuse("must have ranges of characters in order");
        next.ranges[0].second = last.ranges[0].first;
      }
      set.add(next);
    }
    if (set == Set{}) refuse("must have characters in its [...]");
    set.negated = negated;
    return set;
  }
  // Both cases. Characters whose case folds to several (st, ss, ff, fi, fl) are not supported.
  void fold(Set& set) {
    std::vector<std::pair<char32_t, char32_t>> more;
    std::string letters;
    for (const auto& [first, last] : set.ranges) {
      const bool is_letter = is_ascii_letter(first);
      if (first != last || (first >= 0x80)) refuse("must have single ASCII characters in (?i:...)");
      if (!is_letter) continue;
      const char32_t small = first | 0x20;
      letters.push_back(static_cast<char>(small));
      const bool after_s = previous_.find('s') != std::string::npos, after_f = previous_.find('f') != std::string::npos;
      const bool ligature =
          (after_s && (small == 's' || small == 't')) || (after_f && (small == 'f' || small == 'i' || small == 'l'));
      if (ligature) refuse("must not have ss, st, ff, fi and fl in (?i:...)");
      more.insert(more.end(), {{small, small}, {small - 0x20, small - 0x20}});
      if (small == 's') more.emplace_back(0x17F, 0x17F);
      if (small == 'k') more.emplace_back(0x212A, 0x212A);
    }
    if (set.categories != 0 || set.negated) refuse("must have single ASCII characters in (?i:...)");
    set.ranges.insert(set.ranges.end(), more.begin(), more.end());
    previous_ = letters;
  }
  uint64_t bit_of(const Set& set) {
    const auto found = std::ranges::find(sets_, set);
    const auto index = static_cast<size_t>(found - sets_.begin());
    if (found == sets_.end()) sets_.push_back(set);
    if (sets_.size() > kMaxSets) refuse("must have at most 64 different sets of characters");
    return uint64_t{1} << index;
  }
  static void mark_rests(Sequence& sequence, bool rest_matches) {
    for (size_t i = sequence.size(); i-- > 0;) {
      Item& item = sequence[i];
      item.rest_matches = rest_matches;
      for (Sequence& inner : item.alternatives) mark_rests(inner, rest_matches);
      const bool repeats = item.kind == Item::Kind::kSet || item.kind == Item::Kind::kGroup;
      rest_matches = rest_matches && repeats && item.min == 0;
    }
  }
  static uint64_t first_of(const Sequence& sequence, bool& may_be_empty) {
    uint64_t sets = 0;
    may_be_empty = true;
    for (const Item& item : sequence) {
      if (item.kind == Item::Kind::kGroup) {
        bool any_empty = item.min == 0;
        for (const Sequence& inner : item.alternatives) {
          bool empty = true;
          sets |= first_of(inner, empty);
          any_empty = any_empty || empty;
        }
        may_be_empty = any_empty;
      } else if (item.kind == Item::Kind::kSet) {
        sets |= item.set;
        may_be_empty = item.min == 0;
      }
      if (!may_be_empty) return sets;
    }
    return sets;
  }
  void fill_tables() {
    std::map<char32_t, uint64_t> places;
    places[0] = 0;
    for (const Set& set : sets_) {
      for (const auto& [first, last] : set.ranges) places[first] = places[last + 1] = 0;
    }
    for (size_t i = 0; i < sets_.size(); ++i) {
      const uint64_t bit = uint64_t{1} << i;
      for (size_t category = 0; category < std::size(kCategories); ++category) {
        if ((sets_[i].categories >> category & 1) != 0) out_.of_category_[category] |= bit;
      }
      if (sets_[i].negated) out_.negated_ |= bit;
      for (const auto& [first, last] : sets_[i].ranges) {
        for (auto place = places.find(first); place->first <= last; ++place) place->second |= bit;
      }
    }
    out_.of_range_.assign(places.begin(), places.end());
    for (char32_t c = 0; c < out_.ascii_.size(); ++c) out_.ascii_[c] = out_.sets_of(c);
    for (size_t c = 0; c < out_.ascii_.size(); ++c) out_.ascii_candidates_[c] = out_.candidates(out_.ascii_[c]);
    while (out_.of_range_.size() > 1 && out_.of_range_[1].first <= 0x80) out_.of_range_.erase(out_.of_range_.begin());
  }

  Expression& out_;
  const std::string_view pattern_;
  std::string_view rest_;
  std::vector<Set> sets_;
  size_t items_ = 0;
  bool folds_ = false;
  std::string previous_;  // in (?i:...), the letters of the character before
};

Expression::Expression(std::string_view pattern) { ExpressionReader(*this, pattern); }

}  // namespace rf::text
