// The matrix product behind linear layers,
//
//   C[i][j] = act(bias[j] + sum_t A(i,t) B(t,j))
//
// for operands of any orientation; t runs over the depth of the product. C is computed in tiles of at most 64 rows. B
// is copied once for all tiles to blocks of 64 columns, [chunk][block][t][64]. A of a tile is copied, chunk of the
// depth by chunk, to [row][t]; rows that are already units are read in place. A unit of either is 32 bits: a float, or
// two neighbours along the depth as bfloat16 (the even one in the lower half). Sums are floats. An element of C is
// summed in order of t in one thread: no bit depends on the number of threads, nor on the other rows.
//
// The product of a tile of A with blocks of B is Highway's, or that of attention's AMX tiles (gemm_kernel.cpp).
#pragma once

#include <algorithm>
#include <cstdint>

#include "rf/linear.h"

namespace rf::core {

inline constexpr int64_t kTileRows = 64;
inline constexpr int64_t kBlockColumns = 64;
inline constexpr int64_t kUnitStep = 16;     // chunks are whole steps, zeros behind the depth
inline constexpr int64_t kChunkUnits = 528;  // no power of two: rows of a tile would meet in the same cache lines
inline constexpr int64_t kPanelBlocks = 4;   // blocks of B that are multiplied together
inline constexpr int64_t kRunBlocks = 16;    // at most this many form a task
inline constexpr int64_t kTileUnits = kTileRows * kChunkUnits;  // of a tile of A, or of a block of B

enum class Unit { kFloat, kBf16Pair };

struct BlockWeight;  // gemm_blocks.h

// Lines are rows of A or columns of B. Neighbours in memory are the elements of one line, along the depth, or the
// elements at one t of neighbouring lines.
struct GemmOperand {
  rf_dtype dtype = RF_F32;
  const void* data = nullptr;
  int64_t stride = 0;
  enum class Contiguous { kDepth, kLines } contiguous = Contiguous::kDepth;
};

struct Gemm {
  Unit unit = Unit::kFloat;
  bool amx = false;  // pairs are multiplied in AMX tiles
  int64_t rows = 0, columns = 0, depth = 0;
  GemmOperand a, b;
  const uint32_t* packed_b = nullptr;     // all of B, or nullptr
  const BlockWeight* blocks_b = nullptr;  // the same in blocks of a file
  int64_t chunk_units = kChunkUnits;
  rf_dtype c_dtype = RF_F32;
  void* c = nullptr;
  int64_t c_stride = 0;
  const float* bias = nullptr;
  rf_linear_activation activation = RF_LINEAR_NONE;
  rf_gelu_form gate = {};  // as in rf/linear.h: C has half the columns

  int64_t depth_of_unit() const { return unit == Unit::kBf16Pair ? 2 : 1; }
  int64_t chunk_depth() const { return chunk_units * depth_of_unit(); }
  int64_t chunks() const { return (depth + chunk_depth() - 1) / chunk_depth(); }
  int64_t depth_of(int64_t chunk) const { return std::min(chunk_depth(), depth - chunk * chunk_depth()); }
  int64_t units_of(int64_t chunk) const {
    const int64_t step = kUnitStep * depth_of_unit();
    return (depth_of(chunk) + step - 1) / step * kUnitStep;
  }
  int64_t depth_units_of(int64_t chunk) const { return (depth_of(chunk) + depth_of_unit() - 1) / depth_of_unit(); }
  int64_t units() const { return chunks() == 0 ? 0 : (chunks() - 1) * chunk_units + units_of(chunks() - 1); }
  int64_t blocks() const { return (columns + kBlockColumns - 1) / kBlockColumns; }
};

// Units of all of B, packed.
inline int64_t packed_units(const Gemm& gemm) { return gemm.units() * gemm.blocks() * kBlockColumns; }
// to: aligned to 64 bytes.
void pack_b(const Gemm& gemm, uint32_t* to);

void multiply(const Gemm& gemm);

// GELU of x + bias in place, for rows of `stride` floats. activation: not RF_LINEAR_NONE.
void activate(rf_linear_activation activation, const float* bias, int64_t rows, int64_t columns, float* x,
              int64_t stride);

}  // namespace rf::core
