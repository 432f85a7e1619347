// A tile of scores and its operations between the products.
//
//   raw    [keys][queries]   ((R^q q + u) . (R^k k)) G + s a . c / s + table terms, not yet scaled
//   score  raw * s + pos,  in units of log2: s and pos are multiplied by log2(e) here
//   weight exp2(score - a score near the largest); no lane depends on another
#if defined(RF_CORE_ATTENTION_TILE_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_TILE_SCORES_INL_H_
#undef RF_CORE_ATTENTION_TILE_SCORES_INL_H_
#else
#define RF_CORE_ATTENTION_TILE_SCORES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "attention/problem.h"
#include "attention/tile-inl.h"
#include "common/arena.h"
#include "common/rows-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "rows/kernels.h"

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

// P, a number for every pair of a query and a key: tile[key][query] = from[query][key]; lanes without a query are 0.
// from: of the tile's first query and key.
inline HWY_NOINLINE void load_pairs(const float* from, int64_t stride, int64_t queries, int64_t keys, float* tile) {
  if (queries < kQueryTile) std::fill_n(tile, keys * kQueryTile, 0.0f);
  const int64_t whole = keys / 4 * 4;  // keys in whole transpositions
  transpose(from, stride, queries, whole, tile, kQueryTile);
  for (int64_t j = whole; j < keys; ++j) {
    for (int64_t i = 0; i < queries; ++i) tile[j * kQueryTile + i] = from[i * stride + j];
  }
}

// gradient[query][key] += tile[key][query]. space: kQueryTile * kKeyTile floats.
inline HWY_NOINLINE void add_pair_gradients(const float* tile, int64_t queries, int64_t keys, float* space,
                                            float* gradient, int64_t stride) {
  const FloatTag d;
  transpose(tile, kQueryTile, keys, kQueryTile, space, kKeyTile);
  for (int64_t i = 0; i < queries; ++i) {
    const float* from = space + i * kKeyTile;
    float* to = gradient + i * stride;
    int64_t j = 0;
    for (; j + kLanes <= keys; j += kLanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, to + j), hn::LoadU(d, from + j)), d, to + j);
    }
    for (; j < keys; ++j) to[j] += from[j];
  }
}

// The numbers that a head of a batch entry adds to scores, starting at query 0 and key 0; nullptr: none.
HWY_INLINE const float* head_scores(const rf_attention_scores& scores, int64_t b, int64_t head) {
  if (scores.numbers == nullptr) return nullptr;
  return static_cast<const float*>(scores.numbers) + (scores.batch == 1 ? 0 : b * scores.stride_b) +
         (scores.heads == 1 ? 0 : head * scores.stride_h);
}

// pos(m,n) without a.c, times log2(e), as a row of floats for every key; kappa, times log2(e), a float for every key;
// and P unchanged, a row of floats for every key.
class PositionScores {
 public:
  PositionScores(const AttentionProblem& problem, Arena& arena)
      : numbers_(arena.take<float>(kTileFloats)),
        pairs_(arena.take<float>(problem.args.pair_bias.numbers == nullptr ? 0 : kTileFloats)) {}

  void compute(const AttentionProblem& problem, int64_t b, int64_t head, const Span& queries, const Span& keys);
  bool any() const { return has_rows_ || by_key_ != nullptr || has_pairs_ || cap_ > 0; }
  float cap() const { return cap_; }  // score_cap, as scores times log2(e) need it
  bool has_rows() const { return has_rows_; }
  const float* row(int64_t key) const { return first_ + key * stride_; }
  bool has_key_scores() const { return by_key_ != nullptr; }
  float key_score(int64_t key) const { return by_key_[key] * kLog2e; }
  bool has_pairs() const { return has_pairs_; }
  const float* pairs(int64_t key) const { return pairs_ + key * kQueryTile; }

 private:
  void compute_rows(const AttentionProblem& problem, int64_t head, const Span& queries, const Span& keys);

  float* numbers_;
  float* pairs_;
  const float* by_key_ = nullptr;  // the caller's
  const float* first_ = nullptr;
  int64_t stride_ = 0;
  bool has_rows_ = false, has_pairs_ = false;
  float cap_ = 0;
};

inline void PositionScores::compute(const AttentionProblem& problem, int64_t b, int64_t head, const Span& queries,
                                    const Span& keys) {
  cap_ = static_cast<float>(problem.args.score_cap) * kLog2e;
  by_key_ = head_scores(problem.args.key_score, b, head);
  if (by_key_ != nullptr) by_key_ += keys.first;
  compute_rows(problem, head, queries, keys);
  const rf_attention_scores& P = problem.args.pair_bias;
  const float* pairs = head_scores(P, b, head);
  has_pairs_ = pairs != nullptr;
  if (!has_pairs_) return;
  load_pairs(pairs + queries.first * P.stride_t + keys.first, P.stride_t, queries.count, keys.count, pairs_);
}

inline HWY_NOINLINE void PositionScores::compute_rows(const AttentionProblem& problem, int64_t head,
                                                      const Span& queries, const Span& keys) {
  const rf_attention_args& x = problem.args;
  const TableRows bias(problem.bias, head);
  const bool reset_rows = x.reset_row != nullptr && queries.has_zero,
             reset_columns = x.reset_col != nullptr && keys.has_zero;
  has_rows_ = bias.rows != nullptr || reset_rows || reset_columns;
  if (!has_rows_) return;
  if (queries.steps && keys.steps && !reset_rows && !reset_columns) {
    // One number for each distance; the row of a key begins one place before that of the key before.
    const int64_t least = queries.positions[0] - keys.positions[keys.count - 1];
    fill_distances(bias, least, kQueryTile + keys.count - 1, kLog2e, numbers_);
    first_ = numbers_ + keys.count - 1;
    stride_ = -1;
    return;
  }
  const float at_row = reset_rows ? static_cast<const float*>(x.reset_row)[head] * kLog2e : 0;
  const float at_column = reset_columns ? static_cast<const float*>(x.reset_col)[head] * kLog2e : 0;
  for (int64_t j = 0; j < keys.count; ++j) {
    float* to = numbers_ + j * kQueryTile;
    for (int64_t i = 0; i < queries.count; ++i) {
      if (reset_rows && queries.positions[i] == 0) {
        to[i] = at_row;
      } else if (reset_columns && keys.positions[j] == 0) {
        to[i] = at_column;
      } else {
        to[i] = bias.rows == nullptr ? 0 : *bias.row(queries.positions[i] - keys.positions[j]) * kLog2e;
      }
    }
    std::fill(to + queries.count, to + kQueryTile, 0.0f);
  }
  first_ = numbers_;
  stride_ = kQueryTile;
}

// Whether scores are raw scores times the scale, uncapped, with no key left out: exp2 then reads the tile unchanged.
HWY_INLINE bool is_plain(const rf_attention_args& x, const PositionScores& position, const TileMask& mask) {
  return !position.any() && mask.kind() == TileMask::Kind::kAll && x.scale >= 0;
}

// The largest score of each lane of a plain tile. factor: raw to score.
template <int kVectors>
HWY_INLINE void compute_largest(const float* tile, int64_t keys, float factor, FloatVec (&largest)[kVectors]) {
  const FloatTag d;
  HWY_UNROLL(3)
  for (int l = 0; l < kVectors; ++l) largest[l] = hn::LoadU(d, tile + l * kLanes);
  for (int64_t j = 1; j < keys; ++j) {
    HWY_UNROLL(3)
    for (int l = 0; l < kVectors; ++l) {
      largest[l] = hn::Max(hn::LoadU(d, tile + j * kQueryTile + l * kLanes), largest[l]);
    }
  }
  HWY_UNROLL(3)
  for (int l = 0; l < kVectors; ++l) largest[l] = hn::Mul(largest[l], hn::Set(d, factor));
}

// raw to score in place, and the largest score of each lane.
template <int kVectors>
HWY_INLINE void finish_scores(float* tile, int64_t keys, float factor, const PositionScores& position,
                              const TileMask& mask, FloatVec (&largest)[kVectors]) {
  const FloatTag d;
  const auto s = hn::Set(d, factor);
  const bool some = mask.kind() == TileMask::Kind::kSome;
  HWY_UNROLL(3)
  for (int l = 0; l < kVectors; ++l) largest[l] = hn::Set(d, kMinusInfinity);
  for (int64_t j = 0; j < keys; ++j) {
    float* row = tile + j * kQueryTile;
    FloatVec score[kVectors];
    HWY_UNROLL(3)
    for (int l = 0; l < kVectors; ++l) score[l] = hn::Mul(hn::LoadU(d, row + l * kLanes), s);
    if (position.has_rows()) {
      HWY_UNROLL(3)
      for (int l = 0; l < kVectors; ++l) score[l] = hn::Add(score[l], hn::LoadU(d, position.row(j) + l * kLanes));
    }
    if (position.has_key_scores()) {
      const auto kappa = hn::Set(d, position.key_score(j));
      HWY_UNROLL(3)
      for (int l = 0; l < kVectors; ++l) score[l] = hn::Add(score[l], kappa);
    }
    if (position.has_pairs()) {
      const auto log2e = hn::Set(d, kLog2e);
      HWY_UNROLL(3)
      for (int l = 0; l < kVectors; ++l) {
        score[l] = hn::MulAdd(hn::LoadU(d, position.pairs(j) + l * kLanes), log2e, score[l]);
      }
    }
    if (position.cap() > 0) {
      const auto cap = hn::Set(d, position.cap());
      HWY_UNROLL(3)
      for (int l = 0; l < kVectors; ++l) score[l] = hn::Mul(cap, hn::Tanh(d, hn::Div(score[l], cap)));
    }
    if (some) {
      HWY_UNROLL(3)
      for (int l = 0; l < kVectors; ++l) {
        const auto open = hn::Gt(hn::LoadU(d, mask.row(j) + l * kLanes), hn::Zero(d));
        score[l] = hn::IfThenElse(open, score[l], hn::Set(d, kMinusInfinity));
      }
    }
    HWY_UNROLL(3)
    for (int l = 0; l < kVectors; ++l) {
      largest[l] = hn::Max(score[l], largest[l]);
      hn::StoreU(score[l], d, row + l * kLanes);
    }
  }
}

// Calls action with the number of vectors of a tile as a constant.
template <class Action>
HWY_INLINE void with_vectors(const Span& queries, const Action& action) {
  if (queries.count > 2 * kLanes) {
    action(std::integral_constant<int, 3>());
  } else if (queries.count > kLanes) {
    action(std::integral_constant<int, 2>());
  } else {
    action(std::integral_constant<int, 1>());
  }
}

// Which probabilities dropout keeps: that of element ((b H + h) T + t) S + s of [B,H,T,S] after the problem's first, as
// rf_dropout would.
class TileDropout {
 public:
  TileDropout(const AttentionProblem& problem, Arena& arena)
      : x_(problem.args),
        first_element_(problem.first_element),
        threshold_(static_cast<uint32_t>(std::lround(x_.dropout * 65536))),
        factor_(arena.take<float>(x_.dropout > 0 ? kTileFloats : 0)) {}

  bool any() const { return threshold_ > 0; }
  void compute(int64_t b, int64_t head, const Span& queries, const Span& keys);
  const float* row(int64_t key) const { return factor_ + key * kQueryTile; }  // 0, or 1 / (1 - p)

 private:
  const rf_attention_args& x_;
  int64_t first_element_;
  uint32_t threshold_;
  float* factor_;
};

inline HWY_NOINLINE void TileDropout::compute(int64_t b, int64_t head, const Span& queries, const Span& keys) {
  const auto scale = static_cast<float>(65536.0 / (65536.0 - threshold_));
  alignas(64) uint16_t numbers[kMaxKeyTile + kMaxDrawnAtOnce];
  for (int64_t i = 0; i < queries.count; ++i) {
    const int64_t row = (b * x_.heads + head) * x_.queries + queries.first + i;
    const int64_t element = first_element_ + row * x_.keys + keys.first;
    const int64_t before = element % kDropoutBlock;
    draw_numbers(element / kDropoutBlock, before + keys.count, x_.seed, x_.stream, numbers);
    for (int64_t j = 0; j < keys.count; ++j) {
      factor_[j * kQueryTile + i] = numbers[before + j] >= threshold_ ? scale : 0.0f;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
