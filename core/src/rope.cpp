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

// Rows that are kept, found in the cache; the others are computed for the call.
template <class T>
class RowsByPosition final : public RopeRows {
 public:
  RowsByPosition(const rf_rope_args& args, int64_t num_freqs, const RopeCache<T>& cache)
      : positions_(args), num_freqs_(num_freqs), cache_(cache) {}

  void find(int64_t b, int64_t first, RopeTile& tile, void* space) const override {
    for (int64_t t = 0; t < tile.tokens; ++t) {
      const int64_t position = positions_.integer_at(b, first + t);
      const T* row = nullptr;
      if (cache_.keeps(position)) {
        row = cache_.row(position);
      } else {
        T* computed = static_cast<T*>(space) + t * 2 * num_freqs_;
        cache_.compute(positions_.at(b, first + t), computed);
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
  const RopeCache<T>& cache_;
};

template <class T>
void apply_with(rf_rope& rope, const rf_rope_args& args, const RopeData& data) {
  RopeCache<T>& cache = cache_of<T>(rope, args.direction);
  std::vector<int64_t> missing = missing_pages(rope, args, cache);
  if (!missing.empty()) cache.add_pages(std::move(missing));
  rotate_data(data, RowsByPosition<T>(args, data.num_freqs, cache));
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
