// The rotary kernel's interface inside core: one tile of tokens and heads, rotated by the best instruction set.
#pragma once

#include <cstdint>

#include "common/element.h"
#include "common/scalar_element.h"
#include "rf/rope.h"

namespace rf::core {

// Sign of the sine: R, counter-clockwise, or its transpose.
enum class RotationDirection { kForward, kTransposed };

inline constexpr int64_t kMaxTileTokens = 32;

// The [B, T, H, D] views of a call, as its argument struct gives them.
struct RopeData {
  const char* where = "";  // the function's name in errors
  rf_dtype dtype = RF_F32;
  rf_rope_layout layout = RF_ROPE_PAIRS;
  RotationDirection direction = RotationDirection::kForward;
  int64_t num_freqs = 0;
  int64_t batch = 0, tokens = 0, heads = 0, head_dim = 0;
  const void* x = nullptr;
  int64_t x_stride_b = 0, x_stride_t = 0, x_stride_h = 0;  // in elements
  void* y = nullptr;
  int64_t y_stride_b = 0, y_stride_t = 0, y_stride_h = 0;

  bool is_empty() const { return batch == 0 || tokens == 0 || heads == 0; }
};

// A few tokens of one sequence, at most kMaxTileTokens: x and y begin at the first head of the first one.
struct RopeTile : RopeData {
  Stores stores = Stores::kPlain;  // streaming needs y != x and no gaps between a token's heads, or whole lines
  // Per token num_freqs cosines, and as many sines; double for RF_F64, otherwise float.
  const void* cos[kMaxTileTokens] = {};
  const void* sin[kMaxTileTokens] = {};
  // For streaming: work space of one thread, rope_stage_bytes() large.
  void* stage = nullptr;
};

int64_t rope_stage_bytes(int64_t head_bytes);

void rotate_tile(const RopeTile& tile);

// Orders a thread's streaming stores before its later stores.
void finish_streaming();

}  // namespace rf::core
