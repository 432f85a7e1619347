// Builds the double array breadth first over the sorted pieces; the children of a node go to the first base at which
// all their slots are free. The search continues where the last one for the same number of children ended, so nodes
// with few children fill the gaps between nodes with many.
#include "models/piece_trie.h"

#include <algorithm>
#include <deque>

#include "rf/io/error.h"

namespace rf::text {
namespace {

constexpr uint32_t kByteValues = 256;
constexpr size_t kMaxSlots = size_t{1} << 24;  // a base has 24 bits

}  // namespace

PieceTrie::PieceTrie(const Vocabulary& vocabulary) {
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

// Returns the base of the root.
uint32_t PieceTrie::build(std::vector<Piece> pieces) {
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

uint32_t PieceTrie::find_base(std::span<const uint8_t> bytes) {
  const auto is_free = [this](uint32_t slot) { return nodes_[slot].label() == kFree; };
  uint32_t& from = search_from_[bytes.size()];
  while (true) {
    grow(size_t{from} + kByteValues);
    const uint32_t base = from - bytes.front();
    const bool fits = !is_base_[base] && std::ranges::all_of(bytes, [&](uint8_t byte) { return is_free(base + byte); });
    if (fits) {
      is_base_[base] = true;
      return base;
    }
    ++from;
  }
}

// Grows the array for slots [0, slots) and for the bytes after the last base.
void PieceTrie::grow(size_t slots) {
  if (nodes_.size() >= slots + kByteValues) return;
  if (slots > kMaxSlots) fail("wordpiece", "the tokens of a vocabulary must have fewer than 2^24 prefixes, got more");
  const size_t size = std::max(slots + kByteValues, nodes_.size() + nodes_.size() / 2);
  nodes_.resize(size);
  is_base_.resize(size, false);
}

}  // namespace rf::text
