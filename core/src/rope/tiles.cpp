// Division of a rotary call into tiles (see the header): a few tokens of one sequence by all heads, so that the rows of
// a tile are read from the second-level cache for every head.
#include "rope/tiles.h"

#include <omp.h>

#include <algorithm>

#include "common/cpu_features.h"
#include "common/element.h"
#include "common/parallel_tasks.h"

namespace rf::core {
namespace {

// Table rows of a tile's tokens stay in the second-level cache.
constexpr int64_t kTileTableBytes = 64 * 1024;
// Below this many bytes a call ends before a second thread has started.
constexpr int64_t kParallelBytes = 256 * 1024;

int64_t total_bytes(const RopeData& data) {
  return data.batch * data.tokens * data.heads * data.head_dim * element_bytes(data.dtype);
}

bool results_stream(const RopeData& data) {
  // Whole lines can be formed if heads are contiguous, or are whole lines themselves.
  constexpr int64_t kLineBytes = 64;
  const bool whole_lines =
      std::min(data.y_stride_t, data.y_stride_h) == data.head_dim &&
      (data.y_stride_h == data.head_dim ||
       (data.head_dim * element_bytes(data.dtype) % kLineBytes == 0 && is_aligned(data.y, kLineBytes)));
  return data.x != data.y && whole_lines && 2 * total_bytes(data) > last_level_cache_bytes();
}

int64_t tile_tokens(int64_t num_freqs) {
  const int64_t token_bytes = 2 * num_freqs * static_cast<int64_t>(sizeof(double));
  return std::clamp<int64_t>(kTileTableBytes / token_bytes, 1, kMaxTileTokens);
}

// A tile of the call without its rows: sequence b, from token t on.
RopeTile tile_at(const RopeData& data, int64_t b, int64_t t) {
  const int64_t bytes = element_bytes(data.dtype);
  RopeTile tile{data};
  tile.x = static_cast<const char*>(data.x) + (b * data.x_stride_b + t * data.x_stride_t) * bytes;
  tile.y = static_cast<char*>(data.y) + (b * data.y_stride_b + t * data.y_stride_t) * bytes;
  tile.tokens = std::min(tile_tokens(data.num_freqs), data.tokens - t);
  return tile;
}

// Shared by all threads of a call.
class Call {
 public:
  Call(const RopeData& data, const RopeRows& rows)
      : data_(data),
        rows_(rows),
        step_(tile_tokens(data.num_freqs)),
        tiles_per_sequence_((data.tokens + step_ - 1) / step_),
        rows_bytes_(step_ * rows.space_bytes()),
        stores_(results_stream(data) ? Stores::kStreaming : Stores::kPlain) {}

  int64_t tiles() const { return data_.batch * tiles_per_sequence_; }

  int64_t space_bytes() const { return rows_bytes_ + rope_stage_bytes(data_.head_dim * element_bytes(data_.dtype)); }

  // Tiles first .. last - 1 on this thread.
  void run(int64_t first, int64_t last, void* space) const {
    for (int64_t i = first; i < last; ++i) {
      const int64_t b = i / tiles_per_sequence_;
      const int64_t t = i % tiles_per_sequence_ * step_;
      RopeTile tile = tile_at(data_, b, t);
      tile.stores = stores_;
      tile.stage = static_cast<char*>(space) + rows_bytes_;
      rows_.set_rows(b, t, tile, space);
      rotate_tile(tile);
    }
    if (stores_ == Stores::kStreaming) finish_streaming();
  }

 private:
  const RopeData& data_;
  const RopeRows& rows_;
  const int64_t step_;
  const int64_t tiles_per_sequence_;
  const int64_t rows_bytes_;  // of work space: computed rows; the buffer for streaming follows
  const Stores stores_;
};

}  // namespace

void rotate_data(const RopeData& data, const RopeRows& rows) {
  const Call call(data, rows);
  const int64_t tiles = call.tiles();
  // A share of the tiles for every thread.
  const bool parallel = tiles > 1 && 2 * total_bytes(data) >= kParallelBytes;
  const int64_t shares = parallel ? omp_get_max_threads() : 1;
  parallel_tasks<Schedule::kStatic>({shares, shares > 1, call.space_bytes()}, [&](int64_t i, void* space) {
    call.run(tiles * i / shares, tiles * (i + 1) / shares, space);
  });
}

}  // namespace rf::core
