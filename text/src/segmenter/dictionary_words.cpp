// jieba's two file formats and its frequency rules (its functions gen_pfdict, load_userdict, add_word, suggest_freq).
#include "segmenter/dictionary_words.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"

namespace rf::text {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr uint64_t kMaxTotal = uint64_t{1} << 53;  // sums are exact as doubles

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

std::string_view strip(std::string_view line) {
  constexpr std::string_view kSpace = " \t\n\r\v\f";
  const size_t first = line.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(kSpace) + 1 - first);
}

// Calls take(line, line number) for every line, without white space around it; empty lines are skipped.
template <typename Take>
void each_line(std::string_view text, Take take) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t length = std::min(text.find('\n'), text.size());
    if (const std::string_view line = strip(text.substr(0, length)); !line.empty()) take(line, number);
    text.remove_prefix(std::min(length + 1, text.size()));
  }
}

struct Place {
  const std::string& path;
  int64_t line;
  std::string name() const { return fmt::format("{}:{}", path, line); }
};

uint64_t parse_frequency(std::string_view digits, const Place& place) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || value > kMaxTotal) {
    fail(place.name(), "a frequency must be a whole number from 0 to 2^53, got {}", io::printable(digits));
  }
  return value;
}

std::u32string parse_word(std::string_view word, const Place& place) {
  std::u32string chars;
  for (std::string_view rest = word; !rest.empty();) {
    const Decoded decoded = decode_utf8(rest);
    if (!decoded.valid) fail(place.name(), "a dictionary must be UTF-8, got {}", io::printable(word));
    chars.push_back(decoded.code);
    rest.remove_prefix(static_cast<size_t>(decoded.length));
  }
  if (chars.size() > kMaxWordChars) {
    fail(place.name(), "a word must have at most {} characters, got {}", kMaxWordChars, chars.size());
  }
  return chars;
}

struct UserLine {
  std::string_view word;
  std::optional<std::string_view> frequency;
};

// The match of ^(.+?)( [0-9]+)?( [a-z]+)?$: the word is everything before the other parts, and at least one byte.
UserLine split_user_line(std::string_view line) {
  const auto without = [](std::string_view text, bool (*in_field)(char)) {
    size_t begin = text.size();
    while (begin > 0 && in_field(text[begin - 1])) --begin;
    const bool is_field = begin < text.size() && begin > 1 && text[begin - 1] == ' ';
    return is_field ? text.substr(0, begin - 1) : text;
  };
  const std::string_view no_tag = without(line, is_lower);
  const std::string_view word = without(no_tag, is_digit);
  if (word.size() == no_tag.size()) return {no_tag, std::nullopt};
  return {word, no_tag.substr(word.size() + 1)};
}

}  // namespace

DictionaryWords::DictionaryWords() : slots_(size_t{1} << 16), frequencies_(1) {}

void DictionaryWords::add_main(std::string_view text, const std::string& path) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  each_line(text, [&](std::string_view line, int64_t number) {
    const Place place{path, number};
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) {
      fail(place.name(), "a line must be a word and a frequency, got {}", io::printable(line));
    }
    const std::string_view rest = line.substr(space + 1);
    set(parse_word(line.substr(0, space), place), parse_frequency(rest.substr(0, rest.find(' ')), place), place.name());
  });
}

void DictionaryWords::add_user(std::string_view text, const std::string& path) {
  each_line(text, [&](std::string_view line, int64_t number) {
    const Place place{path, number};
    while (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
    if (line.empty()) return;
    const UserLine fields = split_user_line(line);
    const std::u32string word = parse_word(fields.word, place);
    const uint64_t frequency =
        fields.frequency.has_value() ? parse_frequency(*fields.frequency, place) : suggested_frequency(word);
    set(word, frequency, place.name());
  });
}

void DictionaryWords::set(std::u32string_view word, uint64_t frequency, std::string_view where) {
  Node node = root();
  for (const char32_t c : word) node = child_of(node, c);
  frequencies_[node] = frequency;
  total_ += frequency;
  if (total_ > kMaxTotal) fail(where, "the frequencies must add up to at most 2^53, got {}", total_);
  log_total_ = std::log(static_cast<double>(total_));
}

// The frequency at which a word is as probable as the words into which it is split now.
uint64_t DictionaryWords::suggested_frequency(std::u32string_view word) {
  segment(*this, word, buffers_, ends_);
  const auto total = static_cast<double>(total_);
  double probability = 1;
  size_t begin = 0;
  for (const uint32_t end : ends_) {
    probability *= static_cast<double>(frequency_or_one(word.substr(begin, end - begin))) / total;
    begin = end;
  }
  return std::max(static_cast<uint64_t>(probability * total) + 1, frequency_or_one(word));
}

// As in jieba: 0 for a prefix of words that is not a word.
uint64_t DictionaryWords::frequency_or_one(std::u32string_view word) const {
  Node node = root();
  for (const char32_t c : word) {
    if (!step(node, c)) return 1;
  }
  return frequencies_[node];
}

// The slot of the edge, or the empty slot for it.
size_t DictionaryWords::slot_of(Node parent, char32_t character) const {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;  // 2^64 over the golden ratio
  const uint64_t key = uint64_t{parent} << 21 | character;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = (key * kMultiplier >> 24) & mask;; slot = (slot + 1) & mask) {
    if (slots_[slot] == 0) return slot;
    const Edge& edge = edges_[slots_[slot] - 1];
    if (edge.parent == parent && edge.character == character) return slot;
  }
}

bool DictionaryWords::step(Node& node, char32_t character) const {
  const Node child = slots_[slot_of(node, character)];
  if (child == 0) return false;
  node = child;
  return true;
}

DictionaryWords::Node DictionaryWords::child_of(Node parent, char32_t character) {
  if (const Node child = slots_[slot_of(parent, character)]; child != 0) return child;
  const Node child = nodes();
  edges_.push_back({parent, character, child});
  frequencies_.push_back(0);
  if (2 * edges_.size() > slots_.size()) {
    slots_.assign(2 * slots_.size(), 0);
    for (const Edge& edge : edges_) slots_[slot_of(edge.parent, edge.character)] = edge.child;
  } else {
    slots_[slot_of(parent, character)] = child;
  }
  return child;
}

double DictionaryWords::weight(Node node) const {
  const uint64_t frequency = frequencies_[node];
  return frequency == 0 ? kNoWord : word_weight(static_cast<double>(frequency), log_total_);
}

}  // namespace rf::text
