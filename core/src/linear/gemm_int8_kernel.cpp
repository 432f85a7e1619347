// The parts of an int8 product (gemm_int8.h): quantises rows and columns, and computes the sums of a panel and the
// results.
//
// Every float operation here is written and rounded separately, never fused, so all instruction sets give the same
// bits. A number is rounded to the nearest integer, ties to even, by adding 1.5 * 2^23, near which all floats are
// integers.
#include "linear/gemm_int8_kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/simd_targets.h"
#include "common/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linear/gemm_int8_kernel.cpp"
#include "hwy/foreach_target.h"
// Lists the targets, then compiles this file for each one.
#include "common/element.h"
#include "common/rows-inl.h"
#include "hwy/highway.h"
#include "linear/int8_dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

inline constexpr float kRounder = 0x1.8p23f;
inline constexpr int32_t kRounderBits = 0x4B400000;
inline constexpr int32_t kInfinityBits = 0x7F800000;
inline constexpr float kMinScale = std::numeric_limits<float>::min();  // its inverse is finite

// The nearest integers, plus `plus`.
HWY_INLINE IntVec nearest(FloatVec value, int32_t plus) {
  const auto shifted = hn::Add(value, hn::Set(FloatTag(), kRounder));
  return hn::Add(hn::BitCast(IntTag(), shifted), hn::Set(IntTag(), plus - kRounderBits));
}

// As integers, the bits of magnitudes sort like the magnitudes, with infinity and NaN last.
HWY_INLINE IntVec magnitude_bits(FloatVec value) { return hn::BitCast(IntTag(), hn::Abs(value)); }

// Elements i.. of a row, times their factors if given; zeros behind the last.
template <class T>
HWY_INLINE FloatVec load_scaled(const T* x, const float* factors, int64_t i, int64_t count) {
  const auto value = load_some(x + i, count - i);
  return factors == nullptr ? value : hn::Mul(value, load_some(factors + i, count - i));
}

int64_t row_unit_bytes() {
#if RF_HAVE_INT8_INSTRUCTION
  if (Int8InstructionDot::available()) return Int8InstructionDot::kRowUnit;
#endif
  return PortableDot::kRowUnit;
}

template <class T>
Int8RowScale quantize_row_of(const T* x, const float* factors, int64_t count, uint8_t* to, int64_t bytes) {
  const FloatTag d;
  const hn::Rebind<uint8_t, FloatTag> d8;
  auto low = hn::Zero(d), high = low;
  auto largest = hn::Zero(IntTag());
  for (int64_t i = 0; i < count; i += kLanes) {
    const auto value = load_scaled(x, factors, i, count);
    low = hn::Min(low, value);
    high = hn::Max(high, value);
    largest = hn::Max(largest, magnitude_bits(value));
  }
  if (hn::GetLane(hn::MaxOfLanes(IntTag(), largest)) >= kInfinityBits) {
    std::fill_n(to, bytes, uint8_t{0});
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  }
  constexpr float kSteps = 255;
  const float min = hn::GetLane(hn::MinOfLanes(d, low)), max = hn::GetLane(hn::MaxOfLanes(d, high));
  const float scale = std::max(max / kSteps - min / kSteps, kMinScale), inverse = 1 / scale;
  const auto zero = static_cast<int32_t>(std::nearbyint(-min * inverse));
  int64_t i = 0;
  for (; i < count; i += kLanes) {
    const auto scaled = hn::Mul(load_scaled(x, factors, i, count), hn::Set(d, inverse));
    hn::StoreU(hn::DemoteTo(d8, nearest(scaled, zero)), d8, to + i);
  }
  std::fill(to + i, to + bytes, uint8_t{0});
  return {scale, zero};
}

Int8RowScale quantize_row(rf_dtype dtype, const void* x, const float* factors, int64_t count, uint8_t* to,
                          int64_t bytes) {
  Int8RowScale scale = {};
  with_element(dtype, [&](auto element) {
    scale = quantize_row_of(static_cast<const decltype(element)*>(x), factors, count, to, bytes);
  });
  if (row_unit_bytes() != kUnitDepth) PortableDot::widen_row(to, bytes / kUnitDepth);
  return scale;
}

// A column of the product, `count` elements of W, as bytes; `bytes` bytes in all, zeros behind the last element. Writes
// nothing if the scale is not a number.
HWY_INLINE void quantize_column(const float* from, const float* factors, int64_t count, int8_t* to, int64_t bytes,
                                float& scale, int32_t& sum) {
  const FloatTag d;
  const hn::Rebind<int8_t, FloatTag> d8;
  constexpr float kSteps = 127;
  auto largest = hn::Zero(IntTag()), total = largest;
  for (int64_t i = 0; i < count; i += kLanes) {
    largest = hn::Max(largest, magnitude_bits(load_scaled(from, factors, i, count)));
  }
  const int32_t bits = hn::GetLane(hn::MaxOfLanes(IntTag(), largest));
  if (bits >= kInfinityBits) {
    scale = std::numeric_limits<float>::quiet_NaN();
    sum = 0;
    return;
  }
  scale = std::max(std::bit_cast<float>(bits) / kSteps, kMinScale);
  int64_t i = 0;
  for (; i < count; i += kLanes) {
    const auto whole = nearest(hn::Div(load_scaled(from, factors, i, count), hn::Set(d, scale)), 0);
    total = hn::Add(total, whole);
    hn::StoreU(hn::DemoteTo(d8, whole), d8, to + i);
  }
  sum = hn::GetLane(hn::SumOfLanes(IntTag(), total));
  std::fill(to + i, to + bytes, int8_t{0});
}

void pack_panel(const Int8Source& from, int64_t panel, Int8Weight& to, uint32_t* space) {
  constexpr int64_t kPart = 16;  // columns transposed together, so results stay in the nearest cache
  const int64_t units = to.units(), first = panel * kPanelColumns;
  auto* bytes = reinterpret_cast<int8_t*>(space);
  for (int64_t column = 0; column < kPanelColumns; ++column, bytes += units * kUnitDepth) {
    const int64_t j = first + column;
    to.scales[j] = 0;
    to.sums[j] = 0;
    if (j < to.out) {
      quantize_column(from.weight + j * from.stride, from.factors, to.in, bytes, units * kUnitDepth, to.scales[j],
                      to.sums[j]);
    } else {
      std::fill_n(bytes, units * kUnitDepth, int8_t{0});
    }
  }
  auto* transposed = reinterpret_cast<float*>(to.values.get() + panel * to.panel_bytes());
  for (int64_t unit = 0; unit < units; unit += kPart) {
    transpose(reinterpret_cast<const float*>(space + unit), units, kPanelColumns, kPart,
              transposed + unit * kPanelColumns, kPanelColumns);
  }
}

// kRows rows from `row` on by Dot::kVectors vectors of columns from `column` on.
template <class Dot, int kRows>
HWY_INLINE void multiply_rows(const Int8Tile& tile, int64_t row, int64_t column) {
  constexpr int64_t kUnitBytes = kPanelColumns * kUnitDepth;
  const IntTag d;
  const uint8_t* a = tile.rows + row * tile.row_bytes;
  const int8_t* b = tile.panel + column * kUnitDepth;
  IntVec sums[kRows][Dot::kVectors];
  HWY_UNROLL(8)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(3)
    for (int l = 0; l < Dot::kVectors; ++l) sums[i][l] = hn::Zero(d);
  }
  for (int64_t unit = 0; unit < tile.units; ++unit, a += Dot::kRowUnit, b += kUnitBytes) {
    typename Dot::Columns columns[Dot::kVectors];
    HWY_UNROLL(3)
    for (int l = 0; l < Dot::kVectors; ++l) columns[l] = Dot::columns(b + l * kLanes * kUnitDepth);
    HWY_UNROLL(8)
    for (int i = 0; i < kRows; ++i) {
      const auto x = Dot::row(a + i * tile.row_bytes);
      HWY_UNROLL(3)
      for (int l = 0; l < Dot::kVectors; ++l) sums[i][l] = Dot::add(x, columns[l], sums[i][l]);
    }
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kRows; ++i) {
    int32_t* to = tile.sums + (row + i) * kPanelColumns + column;
    HWY_UNROLL(3)
    for (int l = 0; l < Dot::kVectors; ++l) hn::StoreU(sums[i][l], d, to + l * kLanes);
  }
}

// At most kRows rows.
template <class Dot, int kRows>
HWY_INLINE void multiply_last_rows(const Int8Tile& tile, int64_t row, int64_t column) {
  if constexpr (kRows > 0) {
    if (tile.count - row == kRows) return multiply_rows<Dot, kRows>(tile, row, column);
    multiply_last_rows<Dot, kRows - 1>(tile, row, column);
  }
}

template <class Dot>
HWY_NOINLINE void multiply_panel_by(const Int8Tile& tile) {
  static_assert(kPanelColumns % (Dot::kVectors * kLanes) == 0);
  for (int64_t column = 0; column < kPanelColumns; column += Dot::kVectors * kLanes) {
    int64_t row = 0;
    for (; row + Dot::kRows <= tile.count; row += Dot::kRows) multiply_rows<Dot, Dot::kRows>(tile, row, column);
    multiply_last_rows<Dot, Dot::kRows - 1>(tile, row, column);
  }
}

void multiply_panel(const Int8Tile& tile) {
#if RF_HAVE_BF16_INSTRUCTION
  constexpr int64_t kMinAmxRows = 8;
  if (tile.count >= kMinAmxRows && has_amx_int8() && use_amx()) return multiply_panel_in_amx(tile);
#endif
#if RF_HAVE_INT8_INSTRUCTION
  if (Int8InstructionDot::available()) return multiply_panel_by<Int8InstructionDot>(tile);
#endif
  multiply_panel_by<PortableDot>(tile);
}

void scale_panel(const Int8Finish& finish) {
  const FloatTag d;
  const IntTag di;
  alignas(64) float added[kPanelColumns] = {};
  if (finish.bias != nullptr) std::copy_n(finish.bias, finish.columns, added);
  with_element(finish.dtype, [&](auto element) HWY_ATTR {
    auto* to = static_cast<decltype(element)*>(finish.y);
    const int32_t* sums = finish.sums;
    for (int64_t r = 0; r < finish.count; ++r, sums += kPanelColumns, to += finish.y_stride) {
      const auto scale = hn::Set(d, finish.rows[r].scale);
      const auto zero = hn::Set(di, finish.rows[r].zero);
      for (int64_t c = 0; c < finish.columns; c += kLanes) {
        const auto moved = hn::Mul(zero, hn::LoadU(di, finish.column_sums + c));
        const auto sum = hn::ConvertTo(d, hn::Sub(hn::LoadU(di, sums + c), moved));
        const auto scaled = hn::Mul(hn::Mul(sum, hn::LoadU(d, finish.column_scales + c)), scale);
        store_some(hn::Add(scaled, hn::LoadU(d, added + c)), to + c, finish.columns - c);
      }
    }
  });
}

void store_panel(const float* from, int64_t rows, int64_t columns, rf_dtype dtype, void* y, int64_t y_stride) {
  for (int64_t r = 0; r < rows; ++r) store_row(dtype, from + r * kPanelColumns, columns, 1.0f, y, r * y_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rf::core {

HWY_EXPORT(row_unit_bytes);
HWY_EXPORT(quantize_row);
HWY_EXPORT(pack_panel);
HWY_EXPORT(multiply_panel);
HWY_EXPORT(scale_panel);
HWY_EXPORT(store_panel);

int64_t row_unit_bytes() { return HWY_DYNAMIC_DISPATCH(row_unit_bytes)(); }

Int8RowScale quantize_row(rf_dtype dtype, const void* x, const float* factors, int64_t count, uint8_t* to,
                          int64_t bytes) {
  return HWY_DYNAMIC_DISPATCH(quantize_row)(dtype, x, factors, count, to, bytes);
}

void pack_panel(const Int8Source& from, int64_t panel, Int8Weight& to, uint32_t* space) {
  HWY_DYNAMIC_DISPATCH(pack_panel)(from, panel, to, space);
}

void multiply_panel(const Int8Tile& tile) { HWY_DYNAMIC_DISPATCH(multiply_panel)(tile); }

void scale_panel(const Int8Finish& finish) { HWY_DYNAMIC_DISPATCH(scale_panel)(finish); }

void store_panel(const float* from, int64_t rows, int64_t columns, rf_dtype dtype, void* y, int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(store_panel)(from, rows, columns, dtype, y, y_stride);
}

}  // namespace rf::core
#endif
