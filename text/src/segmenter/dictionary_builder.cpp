// Builds the image of a dictionary from jieba's two file formats, with its frequency rules (its functions gen_pfdict,
// load_userdict, add_word, suggest_freq).
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <numeric>
#include <optional>

#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"
#include "segmenter/dictionary_image.h"
#include "segmenter/segmentation.h"

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
    fail(place.name(), "a frequency must be an integer from 0 to 2^53, got {}", io::printable(digits));
  }
  return value;
}

std::u32string parse_word(std::string_view word, const Place& place) {
  std::u32string chars;
  for (std::string_view rest = word; !rest.empty();) {
    const Decoded decoded = take_utf8(rest);
    if (!decoded.valid) fail(place.name(), "a dictionary must be UTF-8, got {}", io::printable(word));
    chars.push_back(decoded.code);
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

// The words of the files: a trie that grows.
class DictionaryWords {
 public:
  using Node = uint32_t;
  struct Edge {
    Node parent;
    char32_t character;
    Node child;
  };

  DictionaryWords() : slots_(size_t{1} << 16), frequencies_(1) {}
  // `text` is the content of the file `path`, which is named in errors.
  void add_main(std::string_view text, const std::string& path) {
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    each_line(text, [&](std::string_view line, int64_t number) {
      const Place place{path, number};
      const size_t space = line.find(' ');
      if (space == std::string_view::npos) {
        fail(place.name(), "a line must be a word and a frequency, got {}", io::printable(line));
      }
      const std::string_view rest = line.substr(space + 1);
      set(parse_word(line.substr(0, space), place), parse_frequency(rest.substr(0, rest.find(' ')), place),
          place.name());
    });
  }
  void add_user(std::string_view text, const std::string& path) {
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

  Node nodes() const { return static_cast<Node>(frequencies_.size()); }
  const std::vector<Edge>& edges() const { return edges_; }           // one for each node but the root
  uint64_t frequency(Node node) const { return frequencies_[node]; }  // 0: no word ends here
  uint64_t total() const { return total_; }

  // For segment(). A character's code is the code point.
  uint32_t code(char32_t c) const { return c < 0x110000 ? c | run_flags(c) : 0; }
  Node root() const { return 0; }
  bool step(Node& node, char32_t character) const {
    const Node child = slots_[slot_of(node, character)];
    if (child == 0) return false;
    node = child;
    return true;
  }
  double weight(Node node) const {
    const uint64_t frequency = frequencies_[node];
    return frequency == 0 ? kNoWord : word_weight(static_cast<double>(frequency), log_total_);
  }
  double single() const { return word_weight(1, log_total_); }

 private:
  void set(std::u32string_view word, uint64_t frequency, std::string_view where) {
    Node node = root();
    for (const char32_t c : word) node = child_of(node, c);
    frequencies_[node] = frequency;
    total_ += frequency;
    if (total_ > kMaxTotal) fail(where, "the frequencies must add up to at most 2^53, got {}", total_);
    log_total_ = std::log(static_cast<double>(total_));
  }
  // The frequency at which a word is as probable as the words into which it is split now.
  uint64_t suggested_frequency(std::u32string_view word) {
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
  uint64_t frequency_or_one(std::u32string_view word) const {
    Node node = root();
    for (const char32_t c : word) {
      if (!step(node, c)) return 1;
    }
    return frequencies_[node];
  }
  // The slot of the edge, or the empty slot for it.
  size_t slot_of(Node parent, char32_t character) const {
    constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;  // 2^64 over the golden ratio
    const uint64_t key = uint64_t{parent} << 21 | character;
    const size_t mask = slots_.size() - 1;
    for (size_t slot = (key * kMultiplier >> 24) & mask;; slot = (slot + 1) & mask) {
      if (slots_[slot] == 0) return slot;
      const Edge& edge = edges_[slots_[slot] - 1];
      if (edge.parent == parent && edge.character == character) return slot;
    }
  }
  Node child_of(Node parent, char32_t character) {
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

  std::vector<Edge> edges_;
  std::vector<uint32_t> slots_;  // hash table of edges by (parent, character): the child, or 0
  std::vector<uint64_t> frequencies_;
  uint64_t total_ = 0;
  double log_total_ = 0;
  SegmentationBuffers buffers_;
  std::vector<uint32_t> ends_;
};

// Numbers from 1 on for the characters of the words; frequent ones get small numbers, which packs well.
std::vector<uint32_t> number_characters(const DictionaryWords& words) {
  std::vector<uint32_t> uses(0x110000);
  for (const DictionaryWords::Edge& edge : words.edges()) ++uses[edge.character];
  std::vector<char32_t> used;
  for (char32_t c = 0; c < uses.size(); ++c) {
    if (uses[c] > 0) used.push_back(c);
  }
  std::stable_sort(used.begin(), used.end(), [&uses](char32_t a, char32_t b) { return uses[a] > uses[b]; });
  std::vector<uint32_t> numbers(0x110000);
  for (uint32_t i = 0; i < used.size(); ++i) numbers[used[i]] = i + 1;
  return numbers;
}

struct CodeTable {
  std::vector<uint16_t> pages;
  std::vector<uint32_t> codes;
};

// Equal pages are stored once.
CodeTable make_code_table(const std::vector<uint32_t>& numbers) {
  CodeTable table;
  for (size_t page = 0; page < DictionaryImage::kPages; ++page) {
    std::array<uint32_t, 256> codes;
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = numbers[256 * page + i] | run_flags(static_cast<char32_t>(256 * page + i));
    }
    size_t at = 0;
    while (at < table.codes.size() && !std::equal(codes.begin(), codes.end(), table.codes.begin() + at)) at += 256;
    if (at == table.codes.size()) table.codes.insert(table.codes.end(), codes.begin(), codes.end());
    table.pages.push_back(static_cast<uint16_t>(at / 256));
  }
  return table;
}

struct Child {
  uint32_t code;
  DictionaryWords::Node node;
};

// The children of each node, by code.
class Children {
 public:
  Children(const DictionaryWords& words, const std::vector<uint32_t>& numbers)
      : begins_(words.nodes() + size_t{1}), children_(words.edges().size()) {
    for (const auto& edge : words.edges()) ++begins_[edge.parent + size_t{1}];
    std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
    std::vector<size_t> next = begins_;
    for (const auto& edge : words.edges()) children_[next[edge.parent]++] = {numbers[edge.character], edge.child};
    for (size_t node = 0; node < words.nodes(); ++node) {
      std::sort(children_.begin() + begins_[node], children_.begin() + begins_[node + 1],
                [](const Child& a, const Child& b) { return a.code < b.code; });
    }
  }
  std::span<const Child> of(DictionaryWords::Node node) const {
    return std::span(children_).subspan(begins_[node], begins_[node + size_t{1}] - begins_[node]);
  }

 private:
  std::vector<size_t> begins_;
  std::vector<Child> children_;
};

// Finds places for the children of one node after another. Sets of similar size are placed in sequence into the gaps
// that larger sets left, so the search for each size goes through the array once.
class Packer {
 public:
  explicit Packer(uint32_t alphabet) : alphabet_(alphabet) { reserve(0); }

  std::vector<DictionaryImage::Node> pack(const DictionaryWords& words, const Children& children) {
    struct Placed {
      DictionaryWords::Node node;
      uint32_t index;
    };
    std::vector<Placed> queue = {{words.root(), 0}};
    nodes_[0] = {0, 0, kNoWord};
    for (size_t i = 0; i < queue.size(); ++i) {
      const Placed parent = queue[i];
      const std::span<const Child> set = children.of(parent.node);
      if (set.empty()) continue;
      const uint32_t base = find_base(set);
      nodes_[parent.index].base = base;
      for (const Child& child : set) {
        nodes_[base + child.code] = {0, parent.index, words.weight(child.node)};
        queue.push_back({child.node, base + child.code});
      }
    }
    return std::move(nodes_);
  }

 private:
  bool is_free(size_t index) const { return nodes_[index].parent == DictionaryImage::kFree; }

  // Any base plus any code is inside the array, because look-up does not check.
  void reserve(size_t base) {
    if (base + alphabet_ < nodes_.size()) return;
    nodes_.resize(base + 2 * size_t{alphabet_} + 2, {0, DictionaryImage::kFree, kNoWord});
  }

  uint32_t find_base(std::span<const Child> set) {
    uint32_t& base = bases_[std::min(set.size(), bases_.size()) - 1];
    for (;; ++base) {
      reserve(base);
      const auto fits = [this, &base](const Child& child) { return is_free(base + child.code); };
      if (std::all_of(set.begin(), set.end(), fits)) return base;
    }
  }

  uint32_t alphabet_;
  std::vector<DictionaryImage::Node> nodes_;
  // Where the search for a set of each size continues; the last is for all larger ones.
  std::vector<uint32_t> bases_ = std::vector<uint32_t>(64, 1);
};

template <typename T>
void copy_into(std::string& bytes, size_t offset, const std::vector<T>& values) {
  std::memcpy(bytes.data() + offset, values.data(), values.size() * sizeof(T));
}

}  // namespace

std::string build_image(const std::vector<DictionarySource>& sources, const Hash128& key) {
  DictionaryWords words;
  words.add_main(sources.front().text, sources.front().path);
  if (words.total() == 0) {
    fail(sources.front().path, "a dictionary must have a word with a frequency above 0, got none");
  }
  for (size_t i = 1; i < sources.size(); ++i) words.add_user(sources[i].text, sources[i].path);
  const std::vector<uint32_t> numbers = number_characters(words);
  const CodeTable table = make_code_table(numbers);
  const uint32_t alphabet = *std::max_element(numbers.begin(), numbers.end());
  const std::vector<DictionaryImage::Node> nodes = Packer(alphabet).pack(words, Children(words, numbers));

  ImageHeader header{};
  std::ranges::copy(ImageHeader::kMagic, header.magic);
  header.version = ImageHeader::kVersion;
  header.byte_order = ImageHeader::kByteOrder;
  header.key = key;
  header.code_pages = table.codes.size() / 256;
  header.nodes = nodes.size();
  for (DictionaryWords::Node node = 0; node < words.nodes(); ++node)
    header.words += words.frequency(node) > 0 ? 1U : 0U;
  header.total = words.total();
  header.single = words.single();
  const size_t nodes_at = DictionaryImage::nodes_offset(header.code_pages);
  header.size = nodes_at + nodes.size() * sizeof(DictionaryImage::Node);

  std::string bytes(header.size, '\0');
  copy_into(bytes, sizeof header, table.pages);
  copy_into(bytes, DictionaryImage::kCodesOffset, table.codes);
  copy_into(bytes, nodes_at, nodes);
  std::memcpy(bytes.data(), &header, sizeof header);
  header.content_hash = content_hash(std::as_bytes(std::span(bytes)));
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

}  // namespace rf::text
