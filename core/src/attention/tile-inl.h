// The parts of a tile of scores: a query in every lane, a row for every key, and rows by distance.
#if defined(RF_CORE_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_TILE_INL_H_
#undef RF_CORE_ATTENTION_TILE_INL_H_
#else
#define RF_CORE_ATTENTION_TILE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "attention/tile.h"
#include "common/float_vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

inline constexpr int64_t kQueryTile = kQueryVectors * kLanes;
inline constexpr int64_t kTileFloats = kMaxKeyTile * kQueryTile;

// Tokens of one side of a tile.
struct Span {
  int64_t first = 0, count = 0;
  const int64_t* positions = nullptr;  // of the tile's tokens
  bool steps = false;                  // positions rise by 1
  bool has_zero = false;               // whether one is 0

  Span() = default;
  Span(int64_t begin, int64_t length, const int64_t* all) : first(begin), count(length), positions(all + begin) {
    steps = true;
    for (int64_t i = 0; i < count; ++i) {
      steps = steps && positions[i] - positions[0] == i;
      has_zero = has_zero || positions[i] == 0;
    }
  }
};

HWY_INLINE bool steps(const Span& queries, const Span& keys) { return queries.steps && keys.steps; }

// Tokens of one side, and their rows before rotation, [count][width].
struct RawSide {
  const Span& span;
  const float* raw_rows;
};

// Rows by distance of one head.
struct TableRows {
  const float* rows = nullptr;
  int64_t lo = 0, hi = 0, stride = 0;

  TableRows() = default;
  TableRows(const TermTable& table, int64_t head) : rows(table.rows), lo(table.lo), hi(table.hi), stride(table.stride) {
    if (rows != nullptr && table.heads > 1) rows += head * table.row_count() * stride;
  }
  bool defined() const { return rows != nullptr; }
  int64_t index(int64_t distance) const { return std::clamp(distance, lo, hi) - lo; }
  const float* row(int64_t distance) const { return rows + index(distance) * stride; }
};

// The numbers that a tile of products begins with: rows of kQueryTile, or one row for all keys, or zeros.
struct Start {
  const float* rows = nullptr;
  int64_t stride = 0;
};

// Rows of one number of distances least, least + 1, .., times `factor`.
inline void fill_distances(const TableRows& table, int64_t least, int64_t count, float factor, float* numbers) {
  const int64_t first = std::clamp<int64_t>(table.lo - least, 0, count);
  const int64_t end = std::clamp<int64_t>(table.hi - least + 1, first, count);
  std::fill(numbers, numbers + first, *table.row(table.lo) * factor);
  for (int64_t i = first; i < end; ++i) numbers[i] = table.rows[least + i - table.lo] * factor;
  std::fill(numbers + end, numbers + count, *table.row(table.hi) * factor);
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
