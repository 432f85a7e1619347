// The word pieces of a vocabulary for longest-match look-up: two byte tries, one of all tokens, which may all begin a
// word, and one of the tokens that continue a word (stored without their "##"). Both are in one double array without
// parents: the child of a node under a byte is at the node's base plus the byte, if that slot is labelled with the
// byte; no two nodes have the same base. A piece holds whole characters, so on valid UTF-8 a byte-wise match ends at a
// character boundary. A dictionary (dictionary_image.h) steps by characters, which do not fit a label, so its nodes
// store their parents and are twice as large; such nodes would make English text 16 % slower here.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "rf/text/vocabulary.h"

namespace rf::text {

class PieceTrie {
 public:
  enum Root : uint8_t { kWordStart = 0, kContinuation = 1 };

  explicit PieceTrie(const Vocabulary& vocabulary);

  struct Match {
    int32_t id;  // -1: no piece is a prefix of the text
    uint32_t length;
  };
  // The token that equals the whole text; -1: none.
  int32_t find(std::string_view text) const {
    const Match match = longest(text, kWordStart);
    return match.length == text.size() ? match.id : -1;
  }
  bool contains(std::string_view text) const { return find(text) >= 0; }
  // The longest piece at the front of `text`, valid UTF-8.
  Match longest(std::string_view text, Root root) const {
    Match best{-1, 0};
    uint32_t base = roots_[root];
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      const Node& node = nodes_[size_t{base} + byte];
      if (node.label() != byte) break;
      if (node.id >= 0) best = {node.id, static_cast<uint32_t>(i + 1)};
      base = node.base();
    }
    return best;
  }

 private:
  static constexpr uint8_t kFree = 0xFF;  // a label: no byte of UTF-8
  static constexpr uint32_t kLeaf = 0;    // the base of nodes without children; the slots after it stay free
  struct Node {
    uint32_t base_and_label = kFree;
    int32_t id = -1;  // of the piece that ends here, or -1

    uint32_t base() const { return base_and_label >> 8; }
    uint8_t label() const { return static_cast<uint8_t>(base_and_label); }
    void set_base(uint32_t base) { base_and_label = base << 8 | label(); }
  };
  struct Piece {
    std::string_view text;
    int32_t id;
  };
  uint32_t build(std::vector<Piece> pieces);
  uint32_t find_base(std::span<const uint8_t> bytes);
  void grow(size_t slots);

  std::vector<Node> nodes_;
  std::array<uint32_t, 2> roots_;
  // While building.
  std::vector<bool> is_base_;
  std::array<uint32_t, 257> search_from_;  // by the number of children
};

}  // namespace rf::text
