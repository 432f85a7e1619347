// Tables by distance where positions rise by 1 on both sides of a tile: the row of a pair depends on query minus key
// index alone, so a tile needs neighbouring rows, and every sum over pairs is a product with a skewed view.
//
//   x = i - j + keys - 1      the row of query i and key j, from the least distance of the tile on: 0 .. queries+keys-2
//
//                    x  0 1 2 3 4
//   panel [x][i]    i=0 . . a b c        rows K[x] times all queries; of query i the rows i .. i+keys-1 count,
//   (3 keys)        i=1 . a b c .        the last key first
//                   i=2 a b c . .
//
// skew_panel brings a panel into the order of a tile, key j and query i from row i - j + keys - 1: the row differs by
// one from lane to lane, which log2(lanes) blends with rows 1, 2, 4, ... further compensate. The other direction does
// not move data: a tile [j][i] read at j = keys-1-x+i is the panel. Rows of zeros around the tile stand for pairs
// outside.
#if defined(RF_CORE_ATTENTION_SHIFT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_SHIFT_INL_H_
#undef RF_CORE_ATTENTION_SHIFT_INL_H_
#else
#define RF_CORE_ATTENTION_SHIFT_INL_H_
#endif

#include <algorithm>

#include "attention/problem.h"
#include "attention/tile-inl.h"
#include "common/tile_product-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

static_assert(kQueryVectors == kBlockVectors);
inline constexpr int64_t kPanelRows = kQueryTile + kKeyTile;  // one more than the distances of a tile
// Zero rows before and after a tile that is read as a panel: a block of product rows reaches so far outside.
inline constexpr int64_t kGuardFloats = kBlockRows * kQueryTile;
// Tiles whose rows are read diagonally have zeros between rows, as far as a vector or a block of rows may reach.
inline constexpr int64_t kGap = 16;
inline constexpr int64_t kWideRow = kQueryTile + kGap;

// The position of a tile's distances in a table.
enum class Reach { kInside, kMixed, kBelow, kAbove };  // kBelow: every distance reads the first row; kAbove: the last

struct Distances {
  int64_t least = 0;
  int64_t count = 0;

  Distances() = default;
  // The distances of all lanes of a query tile.
  Distances(const Span& queries, const Span& keys)
      : least(queries.positions[0] - keys.positions[keys.count - 1]), count(kQueryTile + keys.count - 1) {}

  Reach reach(const TableRows& table) const {
    if (least + count - 1 <= table.lo) return Reach::kBelow;
    if (least >= table.hi) return Reach::kAbove;
    return least >= table.lo && least + count - 1 <= table.hi ? Reach::kInside : Reach::kMixed;
  }
};

// Rows first .. first + count - 1 from the least distance on: the table's own, or copies where distances leave it.
inline const float* rows_at(const TableRows& table, const Distances& distances, int64_t first, int64_t count,
                            float* copies) {
  const int64_t least = distances.least + first;
  if (least >= table.lo && least + count - 1 <= table.hi) return table.row(least);
  for (int64_t x = 0; x < count; ++x) std::copy_n(table.row(least + x), table.stride, copies + x * table.stride);
  return copies;
}

// panel[x] = rows[x] . columns, for `count` rows.
inline void multiply_rows(const float* rows, int64_t stride, int64_t count, const float* columns, float* panel) {
  Product p;
  p.a = rows;
  p.a_row = p.depth = stride;
  p.a_step = 1;
  p.b = columns;
  p.b_step = p.c_row = kQueryTile;
  p.c = panel;
  p.rows = count;
  p.vectors = kQueryVectors;
  multiply<FloatElements>(p);
}

// Products of a query tile with rows by distance, kept because the next tile of keys needs most of the same products.
struct Panel {
  float* rows = nullptr;   // [kPanelRows][kQueryTile]
  float* edges = nullptr;  // [2][kQueryTile]: of the first and the last row
  int64_t least = 0;       // distance of row 0
  bool filled = false;

  Panel() = default;
  Panel(bool wanted, Arena& arena)
      : rows(arena.take<float>(wanted ? kPanelRows * kQueryTile : 0)),
        edges(arena.take<float>(wanted ? 2 * kQueryTile : 0)) {}

  void start(const TableRows& table, const float* columns) {
    filled = false;
    multiply_rows(table.rows, table.stride, 1, columns, edges);
    multiply_rows(table.row(table.hi), table.stride, 1, columns, edges + kQueryTile);
  }

  void fill(const TableRows& table, const Distances& distances, int64_t keys, const float* columns, float* copies) {
    // For the next keys, distances decrease by the number of keys.
    const bool shared = filled && least - distances.least == keys && keys >= kQueryTile;
    int64_t missing = distances.count;
    if (shared) {
      std::copy_n(rows, (kQueryTile - 1) * kQueryTile, rows + keys * kQueryTile);
      missing = keys;
    }
    multiply_rows(rows_at(table, distances, 0, missing, copies), table.stride, missing, columns, rows);
    least = distances.least;
    filled = true;
  }
};

// tile[j][i] = panel[i - j + keys - 1][i].
inline HWY_NOINLINE void skew_panel(const float* panel, int64_t keys, float* tile) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  alignas(64) float rows[(kKeyTile + kLanes) * kLanes];
  const auto lane = hn::Iota(du, 0);
  for (int64_t l = 0; l < kQueryTile; l += kLanes) {
    int64_t left = keys + kLanes - 1;  // rows that later steps still read
    const float* from = panel + l * kQueryTile + l;
    int64_t stride = kQueryTile;
    for (int64_t step = 1; step < kLanes; step *= 2) {
      const auto further = hn::RebindMask(d, hn::TestBit(lane, hn::Set(du, static_cast<uint32_t>(step))));
      left -= step;
      for (int64_t x = 0; x < left; ++x) {
        const auto near = hn::LoadU(d, from + x * stride), far = hn::LoadU(d, from + (x + step) * stride);
        hn::Store(hn::IfThenElse(further, far, near), d, rows + x * kLanes);
      }
      from = rows;
      stride = kLanes;
    }
    for (int64_t j = 0; j < keys; ++j) {
      hn::StoreU(hn::LoadU(d, from + (keys - 1 - j) * stride), d, tile + j * kQueryTile + l);
    }
  }
}

// out[i] += sum_x tile(x,i) rows[x], a tile read as a panel; rows of `width` floats.
inline void add_rows_to_queries(const float* tile, int64_t queries, int64_t keys, const float* rows, int64_t width,
                                float* out) {
  Product p;
  p.a_row = kQueryTile + 1;
  p.a_step = -kQueryTile;
  p.b_step = p.start_row = p.c_row = width;
  p.vectors = width / kLanes;
  for (int64_t i = 0; i < queries; i += kBlockRows) {
    p.rows = std::min<int64_t>(kBlockRows, queries - i);
    p.depth = keys + p.rows - 1;  // from row i, the last key of query i, to the first key of the block's last query
    p.a = tile + (keys - 1) * kQueryTile + i;
    p.b = rows + i * width;
    p.start = p.c = out + i * width;
    multiply<FloatElements>(p);
  }
}

// gradient[x] += sum_i tile(x,i) rows[i]: the other product with the same view.
inline void add_queries_to_rows(const float* tile, int64_t queries, int64_t keys, const float* rows, int64_t width,
                                float* gradient) {
  Product p;
  p.a_row = -kQueryTile;
  p.a_step = kQueryTile + 1;
  p.b_step = p.start_row = p.c_row = width;
  p.vectors = width / kLanes;
  const int64_t distances = queries + keys - 1;
  for (int64_t x = 0; x < distances; x += kBlockRows) {
    p.rows = std::min<int64_t>(kBlockRows, distances - x);
    const int64_t first = std::max<int64_t>(0, x - (keys - 1)), last = std::min(queries - 1, x + p.rows - 1);
    p.depth = last - first + 1;
    p.a = tile + (keys - 1 - x + first) * kQueryTile + first;
    p.b = rows + first * width;
    p.start = p.c = gradient + x * width;
    multiply<FloatElements>(p);
  }
}

// sum[i] += sum_j tile[j][i].
inline HWY_NOINLINE void add_columns(const float* tile, int64_t keys, float* sum) {
  const FloatTag d;
  for (int64_t l = 0; l < kQueryTile; l += kLanes) {
    auto total = hn::LoadU(d, sum + l);
    for (int64_t j = 0; j < keys; ++j) total = hn::Add(total, hn::LoadU(d, tile + j * kQueryTile + l));
    hn::StoreU(total, d, sum + l);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
