// The word pieces of a vocabulary for longest-match look-up: two byte tries, of all tokens, any of which may begin a
// word, and of those that continue one (stored without their "##"), whose edges lie in one open-addressed hash table
// keyed by (node, byte). A piece holds whole characters, so on valid UTF-8 a byte-wise match ends at a character
// boundary.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "rf/text/vocabulary.h"

namespace rf::text {

class PieceTrie {
 public:
  enum Root : uint32_t { kWordStart = 0, kContinuation = 1 };

  explicit PieceTrie(const Vocabulary& vocabulary);

  struct Match {
    int32_t id;  // -1: no piece is a prefix of the text
    size_t length;
  };
  // Whether the text is a token.
  bool contains(std::string_view text) const { return longest(text, kWordStart).length == text.size(); }
  Match longest(std::string_view text, Root root) const {
    Match best{-1, 0};
    uint32_t node = root;
    for (size_t i = 0; i < text.size(); ++i) {
      const Edge* edge = find(key_of(node, text[i]));
      if (edge->key == kEmpty) break;
      node = edge->node;
      if (edge->id >= 0) best = {edge->id, i + 1};
    }
    return best;
  }

 private:
  struct Edge {
    uint64_t key;   // node and byte
    uint32_t node;  // where the edge leads
    int32_t id;     // of the piece that ends there, or -1
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static uint64_t key_of(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<uint8_t>(byte); }

  // The edge of that key, or the empty slot where it belongs.
  const Edge* find(uint64_t key) const {
    constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;  // 2^64 over the golden ratio
    size_t slot = static_cast<size_t>(key * kMultiplier >> shift_);
    while (edges_[slot].key != key && edges_[slot].key != kEmpty) slot = (slot + 1) & (edges_.size() - 1);
    return &edges_[slot];
  }
  void add(std::string_view piece, Root root, int32_t id);

  std::vector<Edge> edges_;  // a power of two of slots, at most half of them taken
  int shift_;
  uint32_t nodes_ = 2;
};

}  // namespace rf::text
