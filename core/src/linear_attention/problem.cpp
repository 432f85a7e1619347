// The order in which tokens are taken (see the header).
#include "linear_attention/problem.h"

#include <algorithm>

namespace rf::core {

ChunkPlan::ChunkPlan(const rf_linear_attention_args& x) {
  if (x.direction == RF_LINEAR_CAUSAL) {
    const int64_t pairs = std::min(x.queries, x.keys);
    parts_[0] = {0, 0, x.queries - pairs, true, false};
    parts_[1] = {0, 0, x.keys - pairs, false, true};
    parts_[2] = {x.queries - pairs, x.keys - pairs, pairs, true, true};
  } else {
    parts_[0] = {0, 0, x.keys, false, true};
    parts_[1] = {0, 0, x.queries, true, false};
    parts_[2] = {};
  }
  for (const Part& part : parts_) count_ += part.chunks();
}

Chunk ChunkPlan::at(int64_t index) const {
  const Part* part = parts_;
  for (; index >= part->chunks(); ++part) index -= part->chunks();
  const int64_t begin = index * kChunk, tokens = std::min(kChunk, part->tokens - begin);
  return {part->first_query + begin, part->has_queries ? tokens : 0, part->first_key + begin,
          part->has_keys ? tokens : 0};
}

}  // namespace rf::core
