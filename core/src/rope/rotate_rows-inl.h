// Rotates rows of floats in work space in place, by a rotation of a call of attention.
#if defined(RF_CORE_ROPE_ROTATE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ROPE_ROTATE_ROWS_INL_H_
#undef RF_CORE_ROPE_ROTATE_ROWS_INL_H_
#else
#define RF_CORE_ROPE_ROTATE_ROWS_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "rf/attention.h"
#include "rope/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// The rows of a rotation that belong to a head, if heads have separate rows; 1 head: shared by all.
struct RotationHead {
  int64_t heads = 1, head = 0;
};

// The first number of token `token` of batch entry b.
inline int64_t rotation_row(const rf_attention_rotation& rotation, RotationHead of, int64_t b, int64_t tokens,
                            int64_t token) {
  const int64_t row = (rotation.batch == 1 ? 0 : b) * tokens + token;
  return (row * of.heads + (of.heads == 1 ? 0 : of.head)) * rotation.pairs;
}

// Rotates rows of floats in place by the rotation of tokens first.. of batch entry b.
inline HWY_NOINLINE void rotate_rows(const rf_attention_rotation& rotation, rf_rope_layout layout,
                                     RotationDirection direction, int64_t b, int64_t tokens, int64_t first,
                                     int64_t rows, float* x, int64_t stride, RotationHead of = {}) {
  if (rotation.cos == nullptr) return;
  const int64_t begin = rotation_row(rotation, of, b, tokens, first), step = of.heads * rotation.pairs;
  for (int64_t done = 0; done < rows; done += kMaxTileTokens) {
    RopeTile tile;
    tile.x = tile.y = x + done * stride;
    tile.tokens = std::min(kMaxTileTokens, rows - done);
    tile.heads = 1;
    tile.num_freqs = rotation.pairs;
    tile.head_dim = 2 * rotation.pairs;
    tile.x_stride_t = tile.y_stride_t = stride;
    tile.layout = layout;
    tile.direction = direction;
    for (int64_t t = 0; t < tile.tokens; ++t) {
      tile.cos[t] = static_cast<const float*>(rotation.cos) + begin + (done + t) * step;
      tile.sin[t] = static_cast<const float*>(rotation.sin) + begin + (done + t) * step;
    }
    rotate_tile(tile);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
