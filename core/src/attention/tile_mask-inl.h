// Which keys of a tile its queries may attend to: window, prefix and mask.
#if defined(RF_CORE_ATTENTION_TILE_MASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_TILE_MASK_INL_H_
#undef RF_CORE_ATTENTION_TILE_MASK_INL_H_
#else
#define RF_CORE_ATTENTION_TILE_MASK_INL_H_
#endif

#include <algorithm>

#include "attention/problem.h"
#include "attention/tile-inl.h"
#include "common/arena.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// Which keys of a tile a query may attend to.
class TileMask {
 public:
  enum class Kind { kAll, kNone, kSome };
  explicit TileMask(Arena& arena) : open_(arena.take<float>(kTileFloats)) {}

  Kind compute(const rf_attention_args& x, int64_t b, int64_t head, const Span& queries, const Span& keys);
  Kind kind() const { return kind_; }
  const float* row(int64_t key) const { return open_ + key * kQueryTile; }  // 1: may, 0: may not

 private:
  float* open_;
  Kind kind_ = Kind::kAll;
};

// The keys that window and prefix allow.
HWY_INLINE TileMask::Kind window_kind(const rf_attention_args& x, int64_t b, const Span& queries, const Span& keys) {
  const int64_t prefix = prefix_of(x, b);
  if (keys.first + keys.count <= prefix) return TileMask::Kind::kAll;
  const int64_t shift = x.keys - x.queries;
  const int64_t least = keys.first - (queries.first + queries.count - 1 + shift);  // of key minus query
  const int64_t most = keys.first + keys.count - 1 - (queries.first + shift);
  const bool left = is_limited(x, RF_WINDOW_LEFT), right = is_limited(x, RF_WINDOW_RIGHT);
  if ((left && most < -x.window_left) || (right && least > x.window_right && keys.first >= prefix)) {
    return TileMask::Kind::kNone;
  }
  const bool inside = (!left || least >= -x.window_left) && (!right || most <= x.window_right);
  return inside ? TileMask::Kind::kAll : TileMask::Kind::kSome;
}

inline HWY_NOINLINE TileMask::Kind TileMask::compute(const rf_attention_args& x, int64_t b, int64_t head,
                                                     const Span& queries, const Span& keys) {
  kind_ = window_kind(x, b, queries, keys);
  if (kind_ == Kind::kNone || (kind_ == Kind::kAll && x.mask == nullptr)) return kind_;
  const bool in_window = kind_ == Kind::kAll;
  const int64_t shift = x.keys - x.queries, prefix = prefix_of(x, b);
  // Wider windows exclude nothing, and their ends would overflow.
  const int64_t left = std::min(x.window_left, x.queries + x.keys);
  const int64_t right = std::min(x.window_right, x.queries + x.keys);
  int64_t closed = 0;
  for (int64_t j = 0; j < keys.count; ++j) {
    const int64_t key = keys.first + j;
    // Lanes first .. last - 1 are in the window.
    int64_t first = 0, last = queries.count;
    if (!in_window && is_limited(x, RF_WINDOW_RIGHT) && key >= prefix) {
      first = std::clamp<int64_t>(key - right - shift - queries.first, 0, queries.count);
    }
    if (!in_window && is_limited(x, RF_WINDOW_LEFT)) {
      last = std::clamp<int64_t>(key + left - shift - queries.first + 1, first, queries.count);
    }
    float* to = open_ + j * kQueryTile;
    std::fill(to, to + kQueryTile, 0.0f);
    if (x.mask == nullptr) {
      std::fill(to + first, to + last, 1.0f);
      closed += queries.count - (last - first);
      continue;
    }
    const uint8_t* mask =
        x.mask + b * x.mask_stride_b + head * x.mask_stride_h + queries.first * x.mask_stride_t + key * x.mask_stride_s;
    for (int64_t i = first; i < last; ++i) to[i] = mask[i * x.mask_stride_t] != 0 ? 1.0f : 0.0f;
    for (int64_t i = 0; i < queries.count; ++i) closed += to[i] == 0;
  }
  kind_ = closed == 0 ? Kind::kAll : closed == queries.count * keys.count ? Kind::kNone : Kind::kSome;
  return kind_;
}

// Whether any of the queries may attend to any of the keys.
HWY_INLINE bool is_needed(const rf_attention_args& x, int64_t b, const Span& queries, int64_t first, int64_t count) {
  Span keys;
  keys.first = first;
  keys.count = count;
  if (window_kind(x, b, queries, keys) == TileMask::Kind::kNone) return false;
  if (!is_padding_mask(x)) return true;
  for (int64_t j = 0; j < count; ++j) {
    if (!is_padding(x, b, first + j)) return true;
  }
  return false;
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
