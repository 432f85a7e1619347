// The rotary operator (rf/rope.h): rules, positions, table rows, and the division of a call into tiles for the threads.
// The arithmetic is rope_kernel.cpp's.
#include "rf/rope.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "cpu_cache.h"
#include "element.h"
#include "error.h"
#include "ref/rope.h"
#include "rope_cache.h"
#include "rope_checks.h"
#include "rope_kernel.h"
#include "scratch.h"
#include "target.h"

struct rf_rope {
  std::vector<rf::core::DoubleDouble> frequencies;
  double scale;
  int64_t max_cached_rows;
  double max_theta;
  // Made when first needed: tables for scale and, where the inverse differs from the transpose, for 1 / scale.
  struct Caches {
    std::atomic<rf::core::RopeCache<float>*> f32{nullptr};
    std::atomic<rf::core::RopeCache<double>*> f64{nullptr};
  };
  Caches forward, inverse;
  std::mutex creation;

  ~rf_rope() {
    for (Caches* caches : {&forward, &inverse}) {
      delete caches->f32.load();
      delete caches->f64.load();
    }
  }
};

namespace rf::core {
namespace {

// Table rows of a tile's tokens stay in the second-level cache.
constexpr int64_t kTileTableBytes = 64 * 1024;
// Below this many bytes a call is over before a second thread has begun.
constexpr int64_t kParallelBytes = 256 * 1024;

class Positions {
 public:
  explicit Positions(const rf_rope_args& args) : args_(args) {}

  double at(int64_t b, int64_t t) const {
    if (args_.positions_i64 == nullptr && args_.positions_f64 != nullptr) return args_.positions_f64[row(b) + t];
    return static_cast<double>(integer_at(b, t));
  }

  // The same as an integer; -1, which no cache keeps, for one that is none or is negative.
  int64_t integer_at(int64_t b, int64_t t) const {
    if (args_.positions_i64 != nullptr) return args_.positions_i64[row(b) + t];
    if (args_.positions_f64 == nullptr) return args_.position_offset + t;
    const double position = args_.positions_f64[row(b) + t];
    if (!(position >= 0 && position < static_cast<double>(kMaxCachedRows))) return -1;
    const auto integer = static_cast<int64_t>(position);
    return static_cast<double>(integer) == position ? integer : -1;
  }

  // Whether they are an array; otherwise they count up from the offset.
  bool are_given() const { return args_.positions_i64 != nullptr || args_.positions_f64 != nullptr; }

  // Sequences that differ in their positions.
  int64_t distinct_batch() const { return are_given() && args_.position_stride_b != 0 ? args_.batch : 1; }

 private:
  int64_t row(int64_t b) const { return b * args_.position_stride_b; }

  const rf_rope_args& args_;
};

template <class T>
RopeCache<T>& cache_of(rf_rope& rope, rf_rope_direction direction) {
  const bool inverted = direction == RF_ROPE_INVERSE && rope.scale != 1;
  rf_rope::Caches& caches = inverted ? rope.inverse : rope.forward;
  auto& slot = [&caches]() -> auto& {
    if constexpr (std::is_same_v<T, float>) {
      return caches.f32;
    } else {
      return caches.f64;
    }
  }
  ();
  if (RopeCache<T>* cache = slot.load(std::memory_order_acquire)) return *cache;
  const std::lock_guard lock(rope.creation);
  if (slot.load() == nullptr) {
    slot = new RopeCache<T>(rope.frequencies, inverted ? 1 / rope.scale : rope.scale, rope.max_cached_rows);
  }
  return *slot.load();
}

// Pages that the positions need and the cache has not; every position is checked on the way.
template <class T>
std::vector<int64_t> missing_pages(const rf_rope& rope, const rf_rope_args& args, const RopeCache<T>& cache) {
  std::vector<int64_t> missing;
  int64_t last_page = -1;
  const auto visit = [&](int64_t position) {
    const int64_t page = cache.page_of(position);
    if (!cache.keeps(position) || page == last_page) return;
    last_page = page;
    if (!cache.has_page(page)) missing.push_back(page);
  };
  const Positions positions(args);
  if (!positions.are_given()) {
    check_position(positions.at(0, 0), rope.max_theta);
    check_position(positions.at(0, args.tokens - 1), rope.max_theta);
    const int64_t first = std::max<int64_t>(args.position_offset, 0);
    const int64_t end = std::min(args.position_offset + args.tokens, cache.max_rows());
    for (int64_t position = first; position < end; position += cache.page_rows()) visit(position);
    if (first < end) visit(end - 1);
    return missing;
  }
  for (int64_t b = 0; b < positions.distinct_batch(); ++b) {
    for (int64_t t = 0; t < args.tokens; ++t) {
      check_given_position(args, b, t, rope.max_theta);
      visit(positions.integer_at(b, t));
    }
  }
  return missing;
}

bool results_stream(const rf_rope_args& args) {
  const int64_t bytes = args.batch * args.tokens * args.heads * args.head_dim * element_bytes(args.dtype);
  // Whole lines can be formed where heads follow each other, or are whole lines themselves.
  constexpr int64_t kLineBytes = 64;
  const bool whole_lines =
      std::min(args.y_stride_t, args.y_stride_h) == args.head_dim &&
      (args.y_stride_h == args.head_dim ||
       (args.head_dim * element_bytes(args.dtype) % kLineBytes == 0 && is_aligned(args.y, kLineBytes)));
  return args.x != args.y && whole_lines && 2 * bytes > last_level_cache_bytes();
}

int64_t tile_tokens(int64_t num_freqs) {
  const int64_t token_bytes = 2 * num_freqs * static_cast<int64_t>(sizeof(double));
  return std::clamp<int64_t>(kTileTableBytes / token_bytes, 1, kMaxTileTokens);
}

// A tile of the call without its rows: sequence b, from token t on.
RopeTile tile_at(const rf_rope_args& args, int64_t num_freqs, int64_t b, int64_t t) {
  const int64_t bytes = element_bytes(args.dtype);
  RopeTile tile;
  tile.x = static_cast<const char*>(args.x) + (b * args.x_stride_b + t * args.x_stride_t) * bytes;
  tile.y = static_cast<char*>(args.y) + (b * args.y_stride_b + t * args.y_stride_t) * bytes;
  tile.tokens = std::min(tile_tokens(num_freqs), args.tokens - t);
  tile.heads = args.heads;
  tile.head_dim = args.head_dim;
  tile.num_freqs = num_freqs;
  tile.x_stride_t = args.x_stride_t;
  tile.x_stride_h = args.x_stride_h;
  tile.y_stride_t = args.y_stride_t;
  tile.y_stride_h = args.y_stride_h;
  tile.turn = args.direction == RF_ROPE_FORWARD ? Turn::kCounterClockwise : Turn::kClockwise;
  return tile;
}

// What all threads of a call share.
template <class T>
class Call {
 public:
  Call(const rf_rope_args& args, int64_t num_freqs, const RopeCache<T>& cache)
      : args_(args),
        positions_(args),
        cache_(cache),
        num_freqs_(num_freqs),
        step_(tile_tokens(num_freqs)),
        tiles_per_sequence_((args.tokens + step_ - 1) / step_),
        stores_(results_stream(args) ? Stores::kStreaming : Stores::kPlain) {}

  int64_t tiles() const { return args_.batch * tiles_per_sequence_; }

  // Tiles first .. last - 1 on this thread. False when there is no memory to work in.
  bool run(int64_t first, int64_t last) const {
    const int64_t rows_bytes = step_ * 2 * num_freqs_ * static_cast<int64_t>(sizeof(T));
    const int64_t stage_bytes = rope_stage_bytes(args_.head_dim * element_bytes(args_.dtype));
    auto* scratch = static_cast<char*>(thread_scratch(rows_bytes + stage_bytes));
    if (scratch == nullptr) return false;
    for (int64_t i = first; i < last; ++i) {
      const int64_t b = i / tiles_per_sequence_;
      const int64_t t = i % tiles_per_sequence_ * step_;
      RopeTile tile = tile_at(args_, num_freqs_, b, t);
      tile.stores = stores_;
      tile.stage = scratch + rows_bytes;
      find_rows(b, t, tile, reinterpret_cast<T*>(scratch));
      rotate_tile(args_.dtype, args_.layout, tile);
    }
    if (stores_ == Stores::kStreaming) finish_streaming();
    return true;
  }

 private:
  // Rows of a tile's tokens; those that are not kept are computed into `space`.
  void find_rows(int64_t b, int64_t first, RopeTile& tile, T* space) const {
    for (int64_t t = 0; t < tile.tokens; ++t) {
      const int64_t position = positions_.integer_at(b, first + t);
      if (cache_.keeps(position)) {
        tile.rows[t] = cache_.row(position);
      } else {
        T* row = space + t * 2 * num_freqs_;
        cache_.compute(positions_.at(b, first + t), row);
        tile.rows[t] = row;
      }
    }
  }

  const rf_rope_args& args_;
  const Positions positions_;
  const RopeCache<T>& cache_;
  const int64_t num_freqs_;
  const int64_t step_;
  const int64_t tiles_per_sequence_;
  const Stores stores_;
};

template <class T>
void rotate_all(const rf_rope_args& args, const Call<T>& call) {
  const int64_t tiles = call.tiles();
  const int64_t bytes = 2 * args.batch * args.tokens * args.heads * args.head_dim * element_bytes(args.dtype);
  std::atomic<bool> worked = true;
  if (tiles == 1 || bytes < kParallelBytes || omp_get_max_threads() == 1) {
    worked = call.run(0, tiles);
  } else {
#pragma omp parallel
    {
      const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
      if (!call.run(tiles * thread / threads, tiles * (thread + 1) / threads)) worked = false;
    }
  }
  if (!worked) throw std::bad_alloc();
}

template <class T>
void apply_with(rf_rope& rope, const rf_rope_args& args) {
  RopeCache<T>& cache = cache_of<T>(rope, args.direction);
  std::vector<int64_t> missing = missing_pages(rope, args, cache);
  if (!missing.empty()) cache.add_pages(std::move(missing));
  rotate_all(args, Call<T>(args, static_cast<int64_t>(rope.frequencies.size()), cache));
}

void apply_reference(rf_rope& rope, const rf_rope_args& args) {
  missing_pages(rope, args, cache_of<double>(rope, RF_ROPE_FORWARD));  // for its checks
  std::vector<double> hi, lo;
  for (const DoubleDouble& theta : rope.frequencies) {
    hi.push_back(theta.hi);
    lo.push_back(theta.lo);
  }
  ref::rope(hi.data(), lo.data(), static_cast<int64_t>(hi.size()), rope.scale, args);
}

void apply(rf_rope* rope, const rf_rope_args* args) {
  require(rope != nullptr, "rope", "rope must not be NULL, got NULL");
  check_args(args, static_cast<int64_t>(rope->frequencies.size()));
  if (args->batch == 0 || args->tokens == 0 || args->heads == 0) return;
  if (use_reference()) return apply_reference(*rope, *args);
  if (args->dtype == RF_F64) return apply_with<double>(*rope, *args);
  apply_with<float>(*rope, *args);
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_rope_create(const double* hi, const double* lo, int64_t num_freqs, double scale,
                                    int64_t max_cached_rows, rf_rope** out) {
  using namespace rf::core;
  return guarded("rope", [&] {
    require(out != nullptr, "rope", "out must not be NULL, got NULL");
    *out = nullptr;
    require(max_cached_rows >= 0 && max_cached_rows <= kMaxCachedRows, "rope", "max_cached_rows must be in 0..",
            kMaxCachedRows, ", got ", max_cached_rows);
    check_scale(scale);
    auto rope = std::make_unique<rf_rope>();
    rope->frequencies = checked_frequencies(hi, lo, num_freqs);
    rope->scale = scale;
    rope->max_cached_rows = max_cached_rows;
    rope->max_theta = max_magnitude(rope->frequencies);
    *out = rope.release();
  });
}

extern "C" void rf_rope_destroy(rf_rope* rope) {
  delete rope;
}

extern "C" rf_status rf_rope_apply(rf_rope* rope, const rf_rope_args* args) {
  return rf::core::guarded("rope", [&] { rf::core::apply(rope, args); });
}
