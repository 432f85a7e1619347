// Sizes of the tiles of fused attention, and terms by distance as its kernels read them. Nothing here depends on the
// instruction set.
#pragma once

#include <cstdint>

namespace rf::core {

inline constexpr int64_t kKeyTile = 64;
inline constexpr int64_t kMaxKeyTile = 128;
inline constexpr int64_t kQueryVectors = 3;  // of a row of a query tile: a product accumulates them together
inline constexpr int64_t kMaxQueryTile = kQueryVectors * 16;  // with the widest instruction set
// Query tiles that share one reading and rotation of a tile of keys; their data stay in the second-level cache.
inline constexpr int64_t kForwardGroup = 48;
inline constexpr int64_t kBackwardGroup = 12;

// A term with rows by distance as the kernels read it: rows are whole vectors, shared by all heads or one set per head.
struct TermTable {
  const float* rows = nullptr;
  int64_t lo = 0, hi = 0, heads = 1;
  int64_t stride = 0;  // floats of a row

  int64_t row_count() const { return hi - lo + 1; }
};

}  // namespace rf::core
