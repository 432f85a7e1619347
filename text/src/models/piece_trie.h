// The word pieces of a vocabulary for longest-match look-up: two byte tries, one of all tokens, which may all begin a
// word, and one of the tokens that continue a word (stored without their "##"). Both are in one double array without
// parents: the child of a node under a byte is at the node's base plus the byte, if that slot is labelled with the
// byte; no two nodes have the same base. A piece holds whole characters, so on valid UTF-8 a byte-wise match ends at a
// character boundary. A dictionary (dictionary_image.h) steps by characters, which do not fit a label, so its nodes
// store their parents and are twice as large; such nodes would make English text 16 % slower here.
//
// Builds the double array breadth first over the sorted pieces; the children of a node go to the first base at which
// all their slots are free. The search continues where the last one for the same number of children ended, so nodes
// with few children fill the gaps between nodes with many.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "rf/io/error.h"
#include "rf/text/vocabulary.h"

namespace rf::text {

class PieceTrie {
 public:
  enum Root : uint8_t { kWordStart = 0, kContinuation = 1 };

  explicit PieceTrie(const Vocabulary& vocabulary) {
    std::vector<Piece> starts, continuations;
    for (int64_t id = 0; id < vocabulary.model_size(); ++id) {
      const std::string_view token = vocabulary.token(id);
      starts.push_back({token, static_cast<int32_t>(id)});
      if (token.starts_with("##")) continuations.push_back({token.substr(2), static_cast<int32_t>(id)});
    }
    search_from_.fill(kLeaf + kByteValues);
    grow(kLeaf + kByteValues);
    roots_ = {build(std::move(starts)), build(std::move(continuations))};
    is_base_ = {};
  }

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

  // Calls found(id, bytes) for each token that is a prefix of the text, the shortest first.
  template <typename Found>
  void for_each_prefix(std::string_view text, Found found) const {
    uint32_t base = roots_[kWordStart];
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      const Node& node = nodes_[size_t{base} + byte];
      if (node.label() != byte) return;
      if (node.id >= 0) found(node.id, i + 1);
      base = node.base();
    }
  }

 private:
  static constexpr uint32_t kByteValues = 256;
  static constexpr size_t kMaxSlots = size_t{1} << 24;  // a base has 24 bits
  static constexpr uint8_t kFree = 0xFF;                // a label: no byte of UTF-8
  static constexpr uint32_t kLeaf = 0;  // the base of nodes without children; the slots after it stay free
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
  // Returns the base of the root.
  uint32_t build(std::vector<Piece> pieces) {
    std::ranges::sort(pieces, {}, &Piece::text);
    struct Task {
      size_t first, last, depth;  // the pieces below a node, and the bytes that lead to it
      uint32_t slot;
    };
    constexpr uint32_t kRoot = kLeaf;  // without a slot: its base is returned
    uint32_t root_base = kLeaf;
    std::deque<Task> tasks = {{0, pieces.size(), 0, kRoot}};
    std::vector<uint8_t> bytes;
    std::vector<size_t> begins;
    for (; !tasks.empty(); tasks.pop_front()) {
      const Task task = tasks.front();
      bytes.clear();
      begins.clear();
      for (size_t i = task.first; i < task.last; ++i) {
        if (pieces[i].text.size() == task.depth) {  // the piece of the node itself
          if (task.slot != kRoot) nodes_[task.slot].id = pieces[i].id;
          continue;
        }
        const auto byte = static_cast<uint8_t>(pieces[i].text[task.depth]);
        if (!bytes.empty() && bytes.back() == byte) continue;
        bytes.push_back(byte);
        begins.push_back(i);
      }
      if (bytes.empty()) continue;
      begins.push_back(task.last);
      const uint32_t base = find_base(bytes);
      if (task.slot == kRoot) {
        root_base = base;
      } else {
        nodes_[task.slot].set_base(base);
      }
      for (size_t i = 0; i < bytes.size(); ++i) {
        nodes_[base + bytes[i]].base_and_label = kLeaf << 8 | bytes[i];
        tasks.push_back({begins[i], begins[i + 1], task.depth + 1, base + bytes[i]});
      }
    }
    return root_base;
  }
  uint32_t find_base(std::span<const uint8_t> bytes) {
    const auto is_free = [this](uint32_t slot) { return nodes_[slot].label() == kFree; };
    uint32_t& from = search_from_[bytes.size()];
    while (true) {
      grow(size_t{from} + kByteValues);
      const uint32_t base = from - bytes.front();
      const bool fits =
          !is_base_[base] && std::ranges::all_of(bytes, [&](uint8_t byte) { return is_free(base + byte); });
      if (fits) {
        is_base_[base] = true;
        return base;
      }
      ++from;
    }
  }
  // Grows the array for slots [0, slots) and for the bytes after the last base.
  void grow(size_t slots) {
    if (nodes_.size() >= slots + kByteValues) return;
    if (slots > kMaxSlots) fail("wordpiece", "the tokens of a vocabulary must have fewer than 2^24 prefixes, got more");
    const size_t size = std::max(slots + kByteValues, nodes_.size() + nodes_.size() / 2);
    nodes_.resize(size);
    is_base_.resize(size, false);
  }

  std::vector<Node> nodes_;
  std::array<uint32_t, 2> roots_;
  // While building.
  std::vector<bool> is_base_;
  std::array<uint32_t, 257> search_from_;  // by the number of children
};

}  // namespace rf::text
