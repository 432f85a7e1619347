// The rotary kernel's interface inside core: one tile of tokens and heads, rotated by the best instruction set.
#pragma once

#include <cstdint>

#include "common/element.h"
#include "rf/rope.h"

namespace rf::core {

// Sign of the sine: R, counter-clockwise, or its transpose.
enum class RotationDirection { kForward, kTransposed };

inline constexpr int64_t kMaxTileTokens = 32;

struct RopeTile {
  const void* x = nullptr;  // first head of the first token
  void* y = nullptr;
  int64_t tokens = 0;  // <= kMaxTileTokens
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t num_freqs = 0;
  int64_t x_stride_t = 0, x_stride_h = 0, y_stride_t = 0, y_stride_h = 0;  // in elements
  RotationDirection direction = RotationDirection::kForward;
  Stores stores = Stores::kPlain;  // streaming needs y != x and no gaps between a token's heads, or whole lines
  // Per token num_freqs cosines, and as many sines; double for RF_F64, otherwise float.
  const void* cos[kMaxTileTokens] = {};
  const void* sin[kMaxTileTokens] = {};
  // For streaming: work space of one thread, rope_stage_bytes() large.
  void* stage = nullptr;
};

int64_t rope_stage_bytes(int64_t head_bytes);

void rotate_tile(rf_dtype dtype, rf_rope_layout layout, const RopeTile& tile);

// Orders a thread's streaming stores before its later stores.
void finish_streaming();

}  // namespace rf::core
