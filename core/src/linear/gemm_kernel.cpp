// The parts of a matrix product (gemm.h): copies operands into the order of the product, and computes the product of a
// tile and the results.
//
// An operand that is contiguous along the depth is copied line by line; an operand whose lines are neighbours in memory
// is copied t by t. If another order is wanted, the copy of a tile or of a block is transposed.
#include "linear/gemm_kernel.h"

#include "common/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linear/gemm_kernel.cpp"
#include "hwy/foreach_target.h"
// Lists the targets, then compiles this file for each one.
#include "common/amx_product-inl.h"
#include "common/element.h"
#include "common/rows-inl.h"
#include "common/tile_product-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// A part of an operand: `lines` from `line` on, `depth` elements of each from `depth_begin` on.
struct Part {
  Unit unit;
  const GemmOperand& from;
  int64_t line, lines, depth_begin, depth;

  const void* begin() const {
    const bool along_depth = from.contiguous == GemmOperand::Contiguous::kDepth;
    const int64_t offset = along_depth ? line * from.stride + depth_begin : depth_begin * from.stride + line;
    return static_cast<const char*>(from.data) + offset * element_bytes(from.dtype);
  }
};

// A line of `count` floats as bfloat16.
HWY_INLINE void round_line(const float* from, int64_t count, uint32_t* to) {
  auto* rounded = reinterpret_cast<BFloat16*>(to);
  for (int64_t i = 0; i < count; i += kLanes) store_some(load_some(from + i, count - i), rounded + i, count - i);
}

// to[line][unit], `stride` units per line, zeros behind the last unit.
void copy_lines(const Part& part, uint32_t* to, int64_t stride) {
  if (part.unit == Unit::kFloat) {
    return load_rows(part.from.dtype, {part.begin(), part.from.stride}, 0, part.lines, part.depth,
                     reinterpret_cast<float*>(to), stride);
  }
  const auto* from = static_cast<const char*>(part.begin());
  const int64_t step = part.from.stride * element_bytes(part.from.dtype);
  for (int64_t line = 0; line < part.lines; ++line, from += step, to += stride) {
    if (part.depth % 2 != 0) to[part.depth / 2] = 0;
    if (part.from.dtype == RF_F32) {
      round_line(reinterpret_cast<const float*>(from), part.depth, to);
    } else {
      std::memcpy(to, from, static_cast<size_t>(part.depth) * sizeof(uint16_t));
    }
    std::fill(to + (part.depth + 1) / 2, to + stride, 0);
  }
}

// The elements of `lines` lines at two neighbouring t as bfloat16 pairs, zeros behind the last line; odd: nullptr for
// zeros.
HWY_INLINE void pair_depths(rf_dtype dtype, const void* even, const void* odd, int64_t lines, uint32_t* to) {
  std::fill(to + lines, to + kBlockColumns, 0);
  (void)dtype;
#if RF_HAVE_BF16_INSTRUCTION
  if (dtype == RF_F32) {
    const FloatTag d;
    const auto *low = static_cast<const float*>(even), *high = static_cast<const float*>(odd);
    for (int64_t i = 0; i < lines; i += kLanes) {
      const auto of_odd = odd == nullptr ? hn::Zero(d) : load_some(high + i, lines - i);
      const auto pairs = InstructionRounding::pairs(d, load_some(low + i, lines - i), of_odd);
      hn::StoreU(pairs, hn::RebindToUnsigned<FloatTag>(), to + i);
    }
    return;
  }
#endif
  const auto *low = static_cast<const uint16_t*>(even), *high = static_cast<const uint16_t*>(odd);
  for (int64_t i = 0; i < lines; ++i) to[i] = low[i] | (odd == nullptr ? 0 : uint32_t{high[i]} << 16);
}

// to[unit][line], kBlockColumns units per row, zeros behind the last line; `units` rows.
void copy_depths(const Part& part, uint32_t* to, int64_t units) {
  constexpr int64_t kStride = kBlockColumns;
  int64_t done = part.depth;
  if (part.unit == Unit::kFloat) {
    load_rows(part.from.dtype, {part.begin(), part.from.stride}, 0, part.depth, part.lines,
              reinterpret_cast<float*>(to), kStride);
  } else {
    const auto* from = static_cast<const char*>(part.begin());
    const int64_t step = part.from.stride * element_bytes(part.from.dtype);
    done = (part.depth + 1) / 2;
    for (int64_t unit = 0; unit < done; ++unit, from += 2 * step) {
      const void* odd = 2 * unit + 1 < part.depth ? from + step : nullptr;
      pair_depths(part.from.dtype, from, odd, part.lines, to + unit * kStride);
    }
  }
  std::fill(to + done * kStride, to + units * kStride, 0);
}

// [rows][columns] to [columns][rows], in parts whose results stay in the nearest cache; 16 columns per part.
void transpose_units(const uint32_t* from, int64_t from_stride, int64_t rows, int64_t columns, uint32_t* to,
                     int64_t to_stride) {
  constexpr int64_t kPart = 16;
  for (int64_t c = 0; c < columns; c += kPart) {
    transpose(reinterpret_cast<const float*>(from + c), from_stride, rows, kPart,
              reinterpret_cast<float*>(to + c * to_stride), to_stride);
  }
}

void pack_tile(const Gemm& gemm, int64_t row, int64_t rows, int64_t chunk, uint32_t* to, uint32_t* space) {
  const Part part{gemm.unit, gemm.a, row, rows, chunk * gemm.chunk_depth(), gemm.depth_of(chunk)};
  const int64_t units = gemm.units_of(chunk);
  if (gemm.a.contiguous == GemmOperand::Contiguous::kDepth) return copy_lines(part, to, units);
  copy_depths(part, space, units);
  transpose_units(space, kBlockColumns, units, kTileRows, to, units);
}

void pack_block(const Gemm& gemm, int64_t block, int64_t chunk, uint32_t* to, uint32_t* space) {
  const int64_t column = block * kBlockColumns, columns = std::min(kBlockColumns, gemm.columns - column);
  const Part part{gemm.unit, gemm.b, column, columns, chunk * gemm.chunk_depth(), gemm.depth_of(chunk)};
  const int64_t units = gemm.units_of(chunk);
  if (gemm.b.contiguous == GemmOperand::Contiguous::kLines) return copy_depths(part, to, units);
  copy_lines(part, space, units);
  std::fill(space + columns * units, space + kBlockColumns * units, 0);
  transpose_units(space, units, kBlockColumns, units, to, kBlockColumns);
}

// Rows by four vectors whose sums are in registers, 24 of 32 or 8 of 16.
#if HWY_TARGET == HWY_AVX3
inline constexpr int64_t kPanelRows = 6;
#else
inline constexpr int64_t kPanelRows = 2;
#endif
inline constexpr int64_t kPanelVectors = 4;
inline constexpr int64_t kBlockVectorCount = kBlockColumns / kLanes;
inline constexpr int64_t kBlockPanels = kBlockVectorCount / kPanelVectors;

template <class Elements, int kRows>
void multiply_rows(const Product& p, int64_t row, LinesBeside& beside) {
  for (int64_t vector = 0; vector < kBlockVectorCount; vector += kPanelVectors) {
    multiply_block<Elements, kRows, kPanelVectors>(p, row, vector, beside);
  }
}

template <class Elements>
void multiply_some_rows(const Product& p, int64_t row, int64_t rows, LinesBeside& beside) {
#if HWY_TARGET == HWY_AVX3
  if (rows == 6) return multiply_rows<Elements, 6>(p, row, beside);
  if (rows == 5) return multiply_rows<Elements, 5>(p, row, beside);
  if (rows == 4) return multiply_rows<Elements, 4>(p, row, beside);
  if (rows == 3) return multiply_rows<Elements, 3>(p, row, beside);
#endif
  if (rows == 2) return multiply_rows<Elements, 2>(p, row, beside);
  multiply_rows<Elements, 1>(p, row, beside);
}

// Prefetches of the row parts of a panel, so that memory is read all the time. The first part of a block that was not
// prefetched reads the block's lines shortly before their use; the other parts together prefetch the next block.
struct PanelAhead {
  LinesBeside block, next;

  PanelAhead(const Product& p, int64_t parts, BlockUnits following, bool asked) {
    constexpr int64_t kFewRows = 4, kNearBytes = 1024, kFarBytes = 8192;  // measured
    constexpr int64_t kUnitBytes = kBlockColumns * int64_t{sizeof(uint32_t)};
    block.next = block.until = static_cast<const char*>(p.b) + (p.rows <= kFewRows ? kNearBytes : kFarBytes);
    block.bytes = kUnitBytes / kBlockPanels;
    const int64_t steps = (asked ? parts : parts - 1) * p.depth * kBlockPanels;
    next.next = next.until = reinterpret_cast<const char*>(following.data);
    next.bytes = steps == 0 ? 0 : (following.count * kUnitBytes + steps - 1) / steps;
  }
};

// Prefetches the part of B that is read 24 rows later. The rows have a stride of 256 bytes, so their lines share a
// quarter of the nearest cache, which cannot keep a block until the next rows of A.
struct RowsOfBlockBeside {
  const char* next;

  RowsOfBlockBeside(const Product& p, int64_t vector)
      : next(static_cast<const char*>(p.b) + (24 * kBlockColumns + vector * kLanes) * int64_t{sizeof(float)}) {}
  HWY_INLINE void step() {
    __builtin_prefetch(next, 0, 3);
    next += kBlockColumns * sizeof(float);
  }
};

// Rows by two vectors whose sums are in registers, 12 of 16. Two vectors of AVX2 are a line of the cache.
template <class Elements>
HWY_NOINLINE void multiply_many_rows(const Product& p) {
  for (int64_t vector = 0; vector < kBlockVectorCount; vector += 2) {
    multiply_columns<Elements, 6, 2>(p, vector, RowsOfBlockBeside(p, vector));
  }
}

// Takes as many rows together as the registers hold, in parts of nearly equal size. A single part does not prefetch its
// block.
template <class Elements>
HWY_NOINLINE void multiply_panel(const Product& p, BlockUnits following, bool asked) {
  const int64_t parts = (p.rows + kPanelRows - 1) / kPanelRows;
  if constexpr (HWY_TARGET != HWY_AVX3) {
    constexpr int64_t kManyRows = 8;  // fewer wait for memory, where longer parts of lines are faster
    if (p.rows >= kManyRows) return multiply_many_rows<Elements>(p);
    if (parts > 1) return multiply<Elements>(p);
  }
  asked = asked && parts > 1;
  PanelAhead ahead(p, parts, following, asked);
  for (int64_t part = 0, row = 0; part < parts; ++part) {
    const int64_t rows = (p.rows - row + parts - part - 1) / (parts - part);
    multiply_some_rows<Elements>(p, row, rows, part == 0 && !asked ? ahead.block : ahead.next);
    row += rows;
  }
}

void multiply_tile(const TileProduct& product) {
  AmxTiles amx;
  Product p;
  p.a = product.a;
  p.a_row = product.a_row;
  p.a_step = 1;
  p.b_step = kBlockColumns;
  p.c_row = product.blocks * kBlockColumns;
  p.start_row = p.c_row;
  p.rows = product.rows;
  p.vectors = kBlockVectorCount;
  p.depth = product.units;
  p.amx = &amx;
  for (int64_t block = 0; block < product.blocks; ++block) {
    const uint32_t* b = product.b + block * product.block_units * kBlockColumns;
    const BlockUnits following = {b + product.block_units * kBlockColumns, product.block_units};
    const BlockUnits next = block + 1 < product.blocks ? following : product.ahead;
    p.b = b;
    p.c = product.c + block * kBlockColumns;
    p.start = product.adds ? p.c : nullptr;
    const bool asked = product.asked || block > 0;
#if RF_HAVE_BF16_INSTRUCTION
    if (product.unit == Unit::kBf16Pair) {
      product.amx ? multiply_in_amx(p) : multiply_panel<Bf16PairElements>(p, next, asked);
      continue;
    }
#endif
    multiply_panel<FloatElements>(p, next, asked);
  }
}

void finish_tile(const Gemm& gemm, int64_t row, int64_t rows, int64_t column, int64_t columns, const float* bias,
                 const float* sums, int64_t stride) {
  const FloatTag d;
  alignas(64) float added[kPanelBlocks * kBlockColumns] = {};
  if (bias != nullptr) std::copy_n(bias, columns, added);
  with_element(gemm.c_dtype, [&](auto element) HWY_ATTR {
    auto* to = static_cast<decltype(element)*>(gemm.c) + row * gemm.c_stride + column;
    for (int64_t r = 0; r < rows; ++r, sums += stride, to += gemm.c_stride) {
      for (int64_t c = 0; c < columns; c += kLanes) {
        store_some(hn::Add(hn::LoadU(d, sums + c), hn::LoadU(d, added + c)), to + c, columns - c);
      }
    }
  });
}

void sum_rows(rf_dtype dtype, const void* x, int64_t stride, int64_t rows, int64_t column, int64_t columns,
              float* sums) {
  constexpr int64_t kChunkRows = 256;
  const FloatTag d;
  const char* from = static_cast<const char*>(x) + column * element_bytes(dtype);
  alignas(64) float total[kBlockColumns] = {}, row[kBlockColumns];
  for (int64_t first = 0; first < rows; first += kChunkRows) {
    alignas(64) float sum[kBlockColumns] = {};
    for (int64_t r = first; r < std::min(rows, first + kChunkRows); ++r) {
      load_rows(dtype, {from, stride}, r, 1, columns, row, kBlockColumns);
      for (int64_t c = 0; c < kBlockColumns; c += kLanes) {
        hn::StoreU(hn::Add(hn::LoadU(d, sum + c), hn::LoadU(d, row + c)), d, sum + c);
      }
    }
    for (int64_t c = 0; c < kBlockColumns; c += kLanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, total + c), hn::LoadU(d, sum + c)), d, total + c);
    }
  }
  std::copy_n(total, columns, sums);
}

bool multiplies_bf16_pairs() { return RF_HAVE_BF16_INSTRUCTION && has_bf16_instruction(); }

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rf::core {

HWY_EXPORT(pack_tile);
HWY_EXPORT(pack_block);
HWY_EXPORT(multiply_tile);
HWY_EXPORT(finish_tile);
HWY_EXPORT(sum_rows);
HWY_EXPORT(multiplies_bf16_pairs);

void pack_tile(const Gemm& gemm, int64_t row, int64_t rows, int64_t chunk, uint32_t* to, uint32_t* space) {
  HWY_DYNAMIC_DISPATCH(pack_tile)(gemm, row, rows, chunk, to, space);
}

void pack_block(const Gemm& gemm, int64_t block, int64_t chunk, uint32_t* to, uint32_t* space) {
  HWY_DYNAMIC_DISPATCH(pack_block)(gemm, block, chunk, to, space);
}

void multiply_tile(const TileProduct& product) { HWY_DYNAMIC_DISPATCH(multiply_tile)(product); }

void finish_tile(const Gemm& gemm, int64_t row, int64_t rows, int64_t column, int64_t columns, const float* bias,
                 const float* sums, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(finish_tile)(gemm, row, rows, column, columns, bias, sums, stride);
}

void sum_rows(rf_dtype dtype, const void* x, int64_t stride, int64_t rows, int64_t column, int64_t columns,
              float* sums) {
  HWY_DYNAMIC_DISPATCH(sum_rows)(dtype, x, stride, rows, column, columns, sums);
}

bool multiplies_bf16_pairs() { return HWY_DYNAMIC_DISPATCH(multiplies_bf16_pairs)(); }

}  // namespace rf::core
#endif
