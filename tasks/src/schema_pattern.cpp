// Characters of JSON strings, and expressions of "pattern" (see schema_parts.h). Classes such as \d contain only ASCII,
// and so do their complements, because regular expression engines differ beyond ASCII.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <vector>

#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"
#include "schema_parts.h"

namespace rf::tasks {

namespace {

constexpr char32_t kLastCharacter = 0x10FFFF, kLastAscii = 0x7F;

struct CharacterRange {
  char32_t low, high;
};
using CharacterRanges = std::vector<CharacterRange>;

const CharacterRanges kDigits = {{'0', '9'}}, kWordCharacters = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                      kSpaces = {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}};

CharacterRanges complement_of(CharacterRanges ranges, char32_t last) {
  std::ranges::sort(ranges, {}, &CharacterRange::low);
  CharacterRanges others;
  char32_t next = 0;
  for (const CharacterRange& range : ranges) {
    if (range.low > next) others.push_back({next, std::min<char32_t>(range.low - 1, last)});
    next = std::max<char32_t>(next, range.high + 1);
    if (next > last) return others;
  }
  others.push_back({next, last});
  return others;
}

// Adds the states of an expression while it reads it.
class PatternReader {
 public:
  PatternReader(ByteAutomaton& automaton, const std::string& pattern, const std::string& where)
      : automaton_(automaton), pattern_(pattern), where_(where), rest_(pattern) {}

  int32_t read(int32_t from) {
    const int32_t to = automaton_.add_state();
    while (true) {
      int32_t at = take('^') ? from : any_characters(from);
      while (!rest_.empty() && rest_[0] != '|' && rest_ != "$" && !rest_.starts_with("$|")) at = repeated(at);
      if (!take('$')) at = any_characters(at);
      automaton_.add_empty(at, to);
      if (rest_.empty()) return to;
      take('|');
    }
  }

 private:
  static constexpr int kMostNesting = 50;
  static constexpr int32_t kMostRepeats = 10'000;

  [[noreturn]] void refuse(const std::string& what) const {
    fail<ArgumentError>("schema",
                        "{} must be an expression of literals, classes, groups, |, repeats, and ^ and $ at its "
                        "ends, got {} in {}",
                        where_, what, io::printable(pattern_));
  }

  bool take(char wanted) {
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  int32_t any_characters(int32_t from) {
    const int32_t loop = automaton_.add_state();
    automaton_.add_empty(from, loop);
    add_any_character(automaton_, loop, loop);
    return loop;
  }

  // An atom and its repeats; each copy is read again.
  int32_t repeated(int32_t from) {
    const std::string_view begin = rest_;
    skip_atom();
    int32_t least = 1, most = 1;
    const bool is_repeated = repeats(least, most);
    if (is_repeated && (rest_.starts_with('?') || rest_.starts_with('+'))) refuse("a lazy or possessive repeat");
    const std::string_view after = rest_;
    const int32_t to = automaton_.add_state();
    int32_t at = from;
    const auto copy = [&] {
      rest_ = begin;
      at = atom(at);
    };
    for (int32_t i = 0; i < least; ++i) copy();
    automaton_.add_empty(at, to);
    if (most < 0) {
      const int32_t loop = automaton_.add_state();
      automaton_.add_empty(at, loop);
      at = loop;
      copy();
      automaton_.add_empty(at, loop);
      automaton_.add_empty(loop, to);
    }
    for (int32_t i = least; i < most; ++i) {
      copy();
      automaton_.add_empty(at, to);
    }
    rest_ = after;
    return to;
  }

  void skip_atom() {
    if (!take('(')) return static_cast<void>(characters());
    if (++depth_ > kMostNesting) refuse("more than 50 groups in each other");
    while (!rest_.empty() && rest_[0] != ')') {
      if (rest_[0] == '(') {
        skip_atom();
      } else if (rest_[0] == '\\' || rest_[0] == '[') {
        static_cast<void>(characters());
      } else {
        rest_.remove_prefix(1);
      }
    }
    take(')');
    --depth_;
  }

  // most: -1 without an end. False: none follows.
  bool repeats(int32_t& least, int32_t& most) {
    if (rest_.empty() || std::strchr("*+?{", rest_[0]) == nullptr) return false;
    most = -1;
    if (take('*')) return least = 0, true;
    if (take('+')) return true;
    if (take('?')) return least = 0, most = 1, true;
    const size_t end = rest_.find('}');
    const std::string_view inside = rest_.substr(1, std::min(end, rest_.size()) - 1);
    const size_t comma = inside.find(',');
    least = count(inside.substr(0, comma));
    if (comma == std::string_view::npos) {
      most = least;
    } else if (comma + 1 < inside.size()) {
      most = count(inside.substr(comma + 1));
    }
    if (end == std::string_view::npos || (most >= 0 && most < least)) refuse("a repeat that is not {m,n}");
    rest_.remove_prefix(end + 1);
    return true;
  }
  int32_t count(std::string_view digits) const {
    int32_t value = -1;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (read.ec != std::errc() || read.ptr != digits.data() + digits.size() || value < 0 || value > kMostRepeats)
      refuse("a repeat that is not {m,n} of at most 10000");
    return value;
  }

  int32_t atom(int32_t from) {
    if (take('(')) return group(from);
    const int32_t to = automaton_.add_state();
    for (const CharacterRange& range : characters()) add_string_characters(automaton_, from, range.low, range.high, to);
    return to;
  }

  int32_t group(int32_t from) {
    if (take('?') && !take(':')) refuse("a group with ?");
    if (++depth_ > kMostNesting) refuse("more than 50 groups in each other");
    const int32_t to = automaton_.add_state();
    do {
      int32_t at = from;
      while (!rest_.empty() && rest_[0] != '|' && rest_[0] != ')') at = repeated(at);
      automaton_.add_empty(at, to);
    } while (take('|'));
    if (!take(')')) refuse("a group without )");
    --depth_;
    return to;
  }

  CharacterRanges characters() {
    if (take('.')) return complement_of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}, kLastCharacter);
    if (take('[')) return character_class();
    if (take('\\')) return escaped();
    if (std::strchr("^$*+?{}|)]", rest_[0]) != nullptr) refuse(fmt::format("{} where a character is wanted", rest_[0]));
    const char32_t code = take_utf8(rest_).code;
    return {{code, code}};
  }

  CharacterRanges escaped() {
    constexpr std::string_view kControls = "tnrf", kValues = "\t\n\r\f";
    if (rest_.empty()) refuse("a backslash at the end");
    const char name = rest_[0];
    rest_.remove_prefix(1);
    switch (name) {
      case 'd': return kDigits;
      case 'w': return kWordCharacters;
      case 's': return kSpaces;
      case 'D': return complement_of(kDigits, kLastAscii);
      case 'W': return complement_of(kWordCharacters, kLastAscii);
      case 'S': return complement_of(kSpaces, kLastAscii);
      case 'u': return hexadecimal(4);
      case 'x': return hexadecimal(2);
      default: break;
    }
    if (const size_t control = kControls.find(name); control != std::string_view::npos) {
      const auto code = static_cast<char32_t>(kValues[control]);
      return {{code, code}};
    }
    const auto code = static_cast<unsigned char>(name);
    if (std::isalnum(code) != 0 || code > kLastAscii) refuse(fmt::format("the escape \\{}", name));
    return {{code, code}};
  }

  CharacterRanges hexadecimal(size_t digits) {
    uint32_t code = 0;
    const std::string_view text = rest_.substr(0, digits);
    const auto read = std::from_chars(text.data(), text.data() + text.size(), code, 16);
    if (text.size() < digits || read.ptr != text.data() + digits || (code >= 0xD800 && code < 0xE000))
      refuse("an escape without its hexadecimal digits");
    rest_.remove_prefix(digits);
    return {{code, code}};
  }

  CharacterRanges character_class() {
    const bool is_negated = take('^');
    CharacterRanges ranges;
    bool has_classes = false;
    while (!rest_.starts_with(']')) {
      const CharacterRanges low = class_member(has_classes);
      if (low.size() == 1 && low[0].low == low[0].high && rest_.size() > 1 && rest_[0] == '-' && rest_[1] != ']') {
        rest_.remove_prefix(1);
        const CharacterRanges high = class_member(has_classes);
        if (high.size() != 1 || high[0].low != high[0].high || high[0].low < low[0].low)
          refuse("a range that does not ascend");
        ranges.push_back({low[0].low, high[0].low});
      } else {
        ranges.insert(ranges.end(), low.begin(), low.end());
      }
    }
    take(']');
    return is_negated ? complement_of(ranges, has_classes ? kLastAscii : kLastCharacter) : ranges;
  }
  CharacterRanges class_member(bool& has_classes) {
    if (rest_.empty()) refuse("a class without ]");
    if (take('\\')) {
      has_classes = has_classes || (!rest_.empty() && std::strchr("dwsDWS", rest_[0]) != nullptr);
      return escaped();
    }
    if (rest_[0] == '[') refuse("[ in a class");
    const char32_t code = take_utf8(rest_).code;
    return {{code, code}};
  }

  ByteAutomaton& automaton_;
  const std::string& pattern_;
  const std::string& where_;
  std::string_view rest_;
  int depth_ = 0;
};

constexpr std::string_view kEscapedCharacters = "\"\\\b\f\n\r\t", kEscapeNames = "\"\\bfnrt";

}  // namespace

void add_string_characters(ByteAutomaton& automaton, int32_t from, char32_t low, char32_t high, int32_t to) {
  constexpr CharacterRange kPlain[] = {{' ', '!'}, {'#', '['}, {']', kLastCharacter}};
  for (const CharacterRange& plain : kPlain)
    automaton.add_characters(from, std::max(low, plain.low), std::min(high, plain.high), to);
  for (size_t i = 0; i < kEscapedCharacters.size(); ++i) {
    const auto code = static_cast<char32_t>(kEscapedCharacters[i]);
    if (low > code || code > high) continue;
    const auto name = static_cast<uint8_t>(kEscapeNames[i]);
    automaton.add_bytes(automaton.add_text(from, "\\"), name, name, to);
  }
}

void add_any_character(ByteAutomaton& automaton, int32_t from, int32_t to) {
  add_string_characters(automaton, from, 0, kLastCharacter, to);
  const int32_t escape = automaton.add_text(from, "\\");
  automaton.add_bytes(escape, '/', '/', to);
  int32_t digits[] = {automaton.add_text(escape, "u"), automaton.add_state(), automaton.add_state(),
                      automaton.add_state()};
  const auto add_digit = [&](int32_t at, int32_t next) {
    automaton.add_bytes(at, '0', '9', next);
    automaton.add_bytes(at, 'A', 'F', next);
    automaton.add_bytes(at, 'a', 'f', next);
  };
  for (const auto& [first, last] : {std::pair('0', '9'), {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}})
    automaton.add_bytes(digits[0], static_cast<uint8_t>(first), static_cast<uint8_t>(last), digits[1]);
  for (const uint8_t letter : {'D', 'd'}) {  // D800..DFFF are surrogates
    const int32_t after = automaton.add_state();
    automaton.add_bytes(digits[0], letter, letter, after);
    automaton.add_bytes(after, '0', '7', digits[2]);
  }
  add_digit(digits[1], digits[2]);
  add_digit(digits[2], digits[3]);
  add_digit(digits[3], to);
}

int32_t add_pattern(ByteAutomaton& automaton, const std::string& pattern, const std::string& where, int32_t from) {
  return PatternReader(automaton, pattern, where).read(from);
}

}  // namespace rf::tasks
