// C interface of rf/rope.h: the rotary operator with its tables, its positions and their rows; the rotation by given
// rows; frequencies and tables. tiles.h does the rest.
#include "rf/rope.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "common/arguments.h"
#include "common/element.h"
#include "common/target.h"
#include "rf/rope_scaling.h"
#include "rope/angle.h"
#include "rope/cache.h"
#include "rope/checks.h"
#include "rope/double_double.h"
#include "rope/reference.h"
#include "rope/tiles.h"

struct rf_rope {
  std::vector<rf::core::DoubleDouble> frequencies;
  double scale;
  int64_t max_cached_rows;
  double max_theta;
  // Created when first needed: tables for scale and, if the inverse differs from the transpose, for 1 / scale.
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

// The positions of a call.
class Positions {
 public:
  explicit Positions(const rf_rope_args& args) : args_(args) {}

  double at(int64_t b, int64_t t) const {
    const int64_t row = b * args_.position_stride_b;
    if (args_.positions_i64 != nullptr) return static_cast<double>(args_.positions_i64[row + t]);
    if (args_.positions_f64 != nullptr) return args_.positions_f64[row + t];
    return static_cast<double>(args_.position_offset + t);
  }
  // Whether they are an array; otherwise they count from the offset in every sequence.
  bool are_given() const { return args_.positions_i64 != nullptr || args_.positions_f64 != nullptr; }
  // Sequences that differ in their positions.
  int64_t sequences() const { return are_given() && args_.position_stride_b != 0 ? args_.batch : 1; }

  void check(double max_theta) const {
    if (!are_given()) {
      check_position(at(0, 0), max_theta);
      check_position(at(0, args_.tokens - 1), max_theta);
      return;
    }
    for (int64_t b = 0; b < sequences(); ++b) {
      for (int64_t t = 0; t < args_.tokens; ++t) check_given_position(args_, b, t, max_theta);
    }
  }

 private:
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

// The tokens of all sequences in order, divided where the block of the cache changes that holds their rows.
struct Runs {
  std::vector<int64_t> begins;
  std::vector<double> blocks;
};

template <class T>
Runs runs_of(const rf_rope_args& args, const RopeCache<T>& cache) {
  const Positions positions(args);
  Runs runs;
  RopeBlock block = cache.block_of(positions.at(0, 0));
  const auto add = [&](int64_t token) {
    runs.begins.push_back(token);
    runs.blocks.push_back(block.first);
  };
  add(0);
  if (!positions.are_given()) {
    for (;;) {
      const int64_t token = static_cast<int64_t>(block.end()) - args.position_offset;
      if (token >= args.tokens) return runs;
      block = cache.block_of(block.end());
      add(token);
    }
  }
  for (int64_t b = 0; b < positions.sequences(); ++b) {
    for (int64_t t = 0; t < args.tokens; ++t) {
      const double position = positions.at(b, t);
      if (block.has(position)) continue;
      block = cache.block_of(position);
      add(b * args.tokens + t);
    }
  }
  return runs;
}

// Kept rows come from the cache; others are computed for the call.
template <class T>
class RowsByPosition final : public RopeRows {
 public:
  RowsByPosition(const rf_rope_args& args, int64_t num_freqs, RopeCache<T>& cache)
      : positions_(args),
        num_freqs_(num_freqs),
        sequence_stride_(positions_.sequences() == 1 ? 0 : args.tokens),
        cache_(cache),
        runs_(runs_of(args, cache)),
        kept_(cache.get(runs_.blocks)) {}

  void set_rows(int64_t b, int64_t first, RopeTile& tile, void* space) const override {
    const int64_t begin = b * sequence_stride_ + first;
    auto next = std::upper_bound(runs_.begins.begin(), runs_.begins.end(), begin);
    auto run = static_cast<size_t>(next - runs_.begins.begin()) - 1;
    for (int64_t t = 0; t < tile.tokens; ++t) {
      if (next != runs_.begins.end() && *next == begin + t) ++next, ++run;
      const double position = positions_.at(b, first + t);
      const T* row = nullptr;
      if (const T* const block = kept_.blocks[run]) {
        row = block + static_cast<int64_t>(position - runs_.blocks[run]) * 2 * num_freqs_;
      } else {
        T* computed = static_cast<T*>(space) + t * 2 * num_freqs_;
        cache_.compute(position, computed);
        row = computed;
      }
      tile.cos[t] = row;
      tile.sin[t] = row + num_freqs_;
    }
  }
  int64_t space_bytes() const override { return 2 * num_freqs_ * static_cast<int64_t>(sizeof(T)); }

 private:
  const Positions positions_;
  const int64_t num_freqs_;
  const int64_t sequence_stride_;  // in tokens of runs_; 0 if all sequences have the same positions
  const RopeCache<T>& cache_;
  const Runs runs_;
  const typename RopeCache<T>::Kept kept_;
};

template <class T>
void apply_with(rf_rope& rope, const rf_rope_args& args, const RopeData& data) {
  RopeCache<T>& cache = cache_of<T>(rope, args.direction);
  rotate_data(data, RowsByPosition<T>(args, data.num_freqs, cache));
}

void apply_reference(rf_rope& rope, const rf_rope_args& args) {
  std::vector<double> hi, lo;
  for (const DoubleDouble& theta : rope.frequencies) {
    hi.push_back(theta.hi);
    lo.push_back(theta.lo);
  }
  ref::rope(hi.data(), lo.data(), static_cast<int64_t>(hi.size()), rope.scale, args);
}

void apply(rf_rope* rope, const rf_rope_args* given) {
  require(rope != nullptr, "rope", "rope must not be NULL, got NULL");
  const rf_rope_args args = arguments("rope", given);
  const auto num_freqs = static_cast<int64_t>(rope->frequencies.size());
  check_args(args, num_freqs);
  const RopeData data = data_of("rope", args, num_freqs);
  if (data.is_empty()) return;
  Positions(args).check(rope->max_theta);
  if (use_reference()) return apply_reference(*rope, args);
  if (args.dtype == RF_F64) return apply_with<double>(*rope, args, data);
  apply_with<float>(*rope, args, data);
}

class GivenRows final : public RopeRows {
 public:
  explicit GivenRows(const rf_rope_rows_args& args) : args_(args) {}

  void set_rows(int64_t b, int64_t first, RopeTile& tile, void*) const override {
    const int64_t bytes = row_element_bytes(args_.dtype);
    for (int64_t t = 0; t < tile.tokens; ++t) {
      const int64_t offset = (b * args_.row_stride_b + (first + t) * args_.row_stride_t) * bytes;
      tile.cos[t] = static_cast<const char*>(args_.cos) + offset;
      tile.sin[t] = static_cast<const char*>(args_.sin) + offset;
    }
  }
  int64_t space_bytes() const override { return 0; }

 private:
  const rf_rope_rows_args& args_;
};

void rotate_by_rows(const rf_rope_rows_args& args) {
  check_rows_args(args);
  const RopeData data = data_of("rotate", args, args.num_freqs);
  if (data.is_empty()) return;
  if (use_reference()) return ref::rotate(args);
  rotate_data(data, GivenRows(args));
}

template <class T>
void table(const double* hi, const double* lo, int64_t num_freqs, double scale, const double* positions, int64_t tokens,
           T* cos_rows, T* sin_rows) {
  const std::vector<DoubleDouble> theta = checked_frequencies(hi, lo, num_freqs);
  check_scale(scale);
  require(tokens >= 0, "rope", "tokens must be >= 0, got ", tokens);
  require(tokens == 0 || (positions != nullptr && cos_rows != nullptr && sin_rows != nullptr), "rope",
          "positions, cos_rows and sin_rows must not be NULL, got NULL");
  checked_product({tokens, num_freqs, static_cast<int64_t>(sizeof(T))}, "tokens * num_freqs", "rope");
  const double max_theta = max_magnitude(theta);
  for (int64_t t = 0; t < tokens; ++t) check_position(positions[t], max_theta);
#pragma omp parallel for schedule(static) if (tokens * num_freqs > 4096)
  for (int64_t t = 0; t < tokens; ++t) {
    fill_row(theta, scale, positions[t], cos_rows + t * num_freqs, sin_rows + t * num_freqs);
  }
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

extern "C" void rf_rope_destroy(rf_rope* rope) { delete rope; }

extern "C" rf_status rf_rope_apply(rf_rope* rope, const rf_rope_args* args) {
  return rf::core::guarded("rope", [&] { rf::core::apply(rope, args); });
}

extern "C" rf_status rf_rope_rotate(const rf_rope_rows_args* args) {
  return rf::core::with_arguments("rotate", args, rf::core::rotate_by_rows);
}

extern "C" rf_status rf_rope_frequencies(double base, int64_t rotary_dim, double* hi, double* lo) {
  rf_rope_scaling unscaled = {};
  unscaled.struct_size = sizeof(unscaled);
  unscaled.type = RF_ROPE_SCALING_NONE;
  unscaled.base = base;
  return rf_rope_scaled_frequencies(&unscaled, rotary_dim, hi, lo);
}

extern "C" rf_status rf_rope_table_f32(const double* hi, const double* lo, int64_t num_freqs, double scale,
                                       const double* positions, int64_t tokens, float* cos_rows, float* sin_rows) {
  return rf::core::guarded("rope",
                           [&] { rf::core::table(hi, lo, num_freqs, scale, positions, tokens, cos_rows, sin_rows); });
}

extern "C" rf_status rf_rope_table_f64(const double* hi, const double* lo, int64_t num_freqs, double scale,
                                       const double* positions, int64_t tokens, double* cos_rows, double* sin_rows) {
  return rf::core::guarded("rope",
                           [&] { rf::core::table(hi, lo, num_freqs, scale, positions, tokens, cos_rows, sin_rows); });
}
