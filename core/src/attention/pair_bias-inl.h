// P, a number for every pair of a query and a key, [T,S] of one head: tiles of it with the queries in the lanes, and
// back to its own layout. Both sides of a copy are in the cache but for the caller's rows, of which no element outside
// the tile is read or written.
#if defined(RF_CORE_ATTENTION_PAIR_BIAS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_PAIR_BIAS_INL_H_
#undef RF_CORE_ATTENTION_PAIR_BIAS_INL_H_
#else
#define RF_CORE_ATTENTION_PAIR_BIAS_INL_H_
#endif

#include <algorithm>

#include "attention/problem.h"
#include "common/rows-inl.h"
#include "common/tile_product-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

inline constexpr int64_t kPairLanes = kBlockVectors * kLanes;  // queries of a tile

// tile[key][query] = from[query][key]; lanes without a query are 0. from: of the tile's first query and key.
inline HWY_NOINLINE void load_pairs(const float* from, int64_t stride, int64_t queries, int64_t keys, float* tile) {
  if (queries < kPairLanes) std::fill_n(tile, keys * kPairLanes, 0.0f);
  const int64_t whole = keys / 4 * 4;  // what a transposition takes
  transpose(from, stride, queries, whole, tile, kPairLanes);
  for (int64_t j = whole; j < keys; ++j) {
    for (int64_t i = 0; i < queries; ++i) tile[j * kPairLanes + i] = from[i * stride + j];
  }
}

// gradient[query][key] += tile[key][query]. space: kPairLanes * kKeyTile floats.
inline HWY_NOINLINE void add_pair_gradients(const float* tile, int64_t queries, int64_t keys, float* space,
                                            float* gradient, int64_t stride) {
  const FloatTag d;
  transpose(tile, kPairLanes, keys, kPairLanes, space, kKeyTile);
  for (int64_t i = 0; i < queries; ++i) {
    const float* from = space + i * kKeyTile;
    float* to = gradient + i * stride;
    int64_t j = 0;
    for (; j + kLanes <= keys; j += kLanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, to + j), hn::LoadU(d, from + j)), d, to + j);
    }
    for (; j < keys; ++j) to[j] += from[j];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
