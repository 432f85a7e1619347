// Building the tries: the table is sized once, for as many edges as the pieces have bytes.
#include "piece_trie.h"

#include <bit>

namespace rf::text {

PieceTrie::PieceTrie(const Vocabulary& vocabulary) {
  size_t bytes = 0;
  for (int64_t id = 0; id < vocabulary.model_size(); ++id) bytes += 2 * vocabulary.token(id).size();
  const size_t slots = std::bit_ceil(2 * bytes + 2);
  shift_ = 64 - std::countr_zero(slots);
  edges_.assign(slots, Edge{kEmpty, 0, -1});
  for (int64_t id = 0; id < vocabulary.model_size(); ++id) {
    const std::string_view token = vocabulary.token(id);
    add(token, kWordStart, static_cast<int32_t>(id));
    if (token.starts_with("##")) add(token.substr(2), kContinuation, static_cast<int32_t>(id));
  }
}

void PieceTrie::add(std::string_view piece, Root root, int32_t id) {
  uint32_t node = root;
  for (size_t i = 0; i < piece.size(); ++i) {
    const uint64_t key = key_of(node, piece[i]);
    Edge& edge = const_cast<Edge&>(*find(key));
    if (edge.key == kEmpty) edge = {key, nodes_++, -1};
    if (i + 1 == piece.size()) edge.id = id;
    node = edge.node;
  }
}

}  // namespace rf::text
