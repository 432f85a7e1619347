// The words of the dictionary files while they are read: a trie that grows, with jieba's rules for frequencies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "segmenter/segmentation.h"

namespace rf::text {

class DictionaryWords {
 public:
  using Node = uint32_t;
  struct Edge {
    Node parent;
    char32_t character;
    Node child;
  };

  DictionaryWords();
  // `text` is the content of the file `path`, which is named in errors.
  void add_main(std::string_view text, const std::string& path);
  void add_user(std::string_view text, const std::string& path);

  Node nodes() const { return static_cast<Node>(frequencies_.size()); }
  const std::vector<Edge>& edges() const { return edges_; }           // one for each node but the root
  uint64_t frequency(Node node) const { return frequencies_[node]; }  // 0: no word ends here
  uint64_t total() const { return total_; }

  // For segment(). A character's code is the code point.
  uint32_t code(char32_t c) const { return c < 0x110000 ? c | run_flags(c) : 0; }
  Node root() const { return 0; }
  bool step(Node& node, char32_t character) const;
  double weight(Node node) const;
  double single() const { return word_weight(1, log_total_); }

 private:
  void set(std::u32string_view word, uint64_t frequency, std::string_view where);
  uint64_t suggested_frequency(std::u32string_view word);
  uint64_t frequency_or_one(std::u32string_view word) const;
  size_t slot_of(Node parent, char32_t character) const;
  Node child_of(Node parent, char32_t character);

  std::vector<Edge> edges_;
  std::vector<uint32_t> slots_;  // hash table of edges by (parent, character): the child, or 0
  std::vector<uint64_t> frequencies_;
  uint64_t total_ = 0;
  double log_total_ = 0;
  SegmentationBuffers buffers_;
  std::vector<uint32_t> ends_;
};

}  // namespace rf::text
