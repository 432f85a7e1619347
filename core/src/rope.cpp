// The rotary operator (rf/rope.h): its tables, positions, and the rows that these choose. rope_tiles.h does the rest.
#include "rf/rope.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "arguments.h"
#include "error.h"
#include "ref/rope.h"
#include "rope_cache.h"
#include "rope_checks.h"
#include "rope_tiles.h"
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

// Those of the tokens of every sequence that has its own, or of one for all; each is checked.
std::vector<double> positions_of(const rf_rope& rope, const rf_rope_args& args) {
  const bool given = args.positions_i64 != nullptr || args.positions_f64 != nullptr;
  const int64_t sequences = given && args.position_stride_b != 0 ? args.batch : 1;
  std::vector<double> positions;
  positions.reserve(static_cast<size_t>(sequences * args.tokens));
  for (int64_t b = 0; b < sequences; ++b) {
    const int64_t row = b * args.position_stride_b;
    for (int64_t t = 0; t < args.tokens; ++t) {
      if (given) check_given_position(args, b, t, rope.max_theta);
      positions.push_back(args.positions_i64 != nullptr   ? static_cast<double>(args.positions_i64[row + t])
                          : args.positions_f64 != nullptr ? args.positions_f64[row + t]
                                                          : static_cast<double>(args.position_offset + t));
    }
  }
  if (!given) {
    check_position(positions.front(), rope.max_theta);
    check_position(positions.back(), rope.max_theta);
  }
  return positions;
}

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

// Rows that are kept, found in the cache; the others are computed for the call.
template <class T>
class RowsByPosition final : public RopeRows {
 public:
  RowsByPosition(const rf_rope_args& args, std::vector<double> positions, int64_t num_freqs, RopeCache<T>& cache)
      : positions_(std::move(positions)),
        num_freqs_(num_freqs),
        sequence_stride_(positions_.size() == static_cast<size_t>(args.tokens) ? 0 : args.tokens),
        cache_(cache),
        rows_(cache.find(positions_)) {}

  void find(int64_t b, int64_t first, RopeTile& tile, void* space) const override {
    for (int64_t t = 0; t < tile.tokens; ++t) {
      const auto at = static_cast<size_t>(b * sequence_stride_ + first + t);
      const T* row = rows_.at[at];
      if (row == nullptr) {
        T* computed = static_cast<T*>(space) + t * 2 * num_freqs_;
        cache_.compute(positions_[at], computed);
        row = computed;
      }
      tile.cos[t] = row;
      tile.sin[t] = row + num_freqs_;
    }
  }
  int64_t space_bytes() const override { return 2 * num_freqs_ * static_cast<int64_t>(sizeof(T)); }

 private:
  const std::vector<double> positions_;
  const int64_t num_freqs_;
  const int64_t sequence_stride_;  // in positions; 0 where all sequences have the same
  const RopeCache<T>& cache_;
  const typename RopeCache<T>::Rows rows_;
};

template <class T>
void apply_with(rf_rope& rope, const rf_rope_args& args, const RopeData& data) {
  RopeCache<T>& cache = cache_of<T>(rope, args.direction);
  rotate_data(data, RowsByPosition<T>(args, positions_of(rope, args), data.num_freqs, cache));
}

void apply_reference(rf_rope& rope, const rf_rope_args& args) {
  positions_of(rope, args);  // for its checks
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
  if (use_reference()) return apply_reference(*rope, args);
  if (args.dtype == RF_F64) return apply_with<double>(*rope, args, data);
  apply_with<float>(*rope, args, data);
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
