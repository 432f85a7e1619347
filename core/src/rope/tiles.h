// A rotary call inside core: its data, the source of its rows, and the division of both into tiles for the threads.
// kernel.cpp does the arithmetic.
#pragma once

#include <cstdint>

#include "rf/rope.h"
#include "rope/kernel.h"

namespace rf::core {

// Args: rf_rope_args or rf_rope_rows_args, not checked yet.
template <class Args>
RopeData data_of(const char* where, const Args& args, int64_t num_freqs) {
  const RotationDirection direction =
      args.direction == RF_ROPE_FORWARD ? RotationDirection::kForward : RotationDirection::kTransposed;
  return {where,           args.dtype, args.layout,     direction,       num_freqs,       args.batch,
          args.tokens,     args.heads, args.head_dim,   args.x,          args.x_stride_b, args.x_stride_t,
          args.x_stride_h, args.y,     args.y_stride_b, args.y_stride_t, args.y_stride_h};
}

// Cosines and sines by token.
class RopeRows {
 public:
  virtual ~RopeRows() = default;

  // Sets cos and sin of the tile's tokens: the tokens of sequence b from `first` on. Rows that are not in a table are
  // computed in `space`, space_bytes() per token.
  virtual void set_rows(int64_t b, int64_t first, RopeTile& tile, void* space) const = 0;
  virtual int64_t space_bytes() const = 0;
};

// Rotates all data, on several threads if that pays off. Throws std::bad_alloc.
void rotate_data(const RopeData& data, const RopeRows& rows);

}  // namespace rf::core
