// The parts of a matrix product (gemm.h) by the best instruction set.
#pragma once

#include "linear/gemm.h"

namespace rf::core {

// Units of a block of B.
struct BlockUnits {
  const uint32_t* data = nullptr;
  int64_t count = 0;  // along the depth
};

// A tile of A times consecutive blocks of B: sets or adds to sums.
struct TileProduct {
  Unit unit = Unit::kFloat;
  const uint32_t* a = nullptr;  // [rows], stride a_row units
  int64_t a_row = 0;
  const uint32_t* b = nullptr;  // [blocks][block_units][64]
  float* c = nullptr;           // [rows][blocks * 64]
  int64_t rows = 0, units = 0, block_units = 0, blocks = 0;
  bool adds = false;
  bool amx = false;    // pairs are multiplied in its tiles
  bool asked = false;  // whether the first block was prefetched as `ahead` earlier
  BlockUnits ahead;    // the next block
};

// Chunk `chunk` of rows row.. of A, [rows][units]. space: kTileUnits.
void pack_tile(const Gemm& gemm, int64_t row, int64_t rows, int64_t chunk, uint32_t* to, uint32_t* space);
// Chunk `chunk` of block `block` of B, [units][64]. space: kTileUnits.
void pack_block(const Gemm& gemm, int64_t block, int64_t chunk, uint32_t* to, uint32_t* space);
void multiply_tile(const TileProduct& product);
// Sums, [rows][stride], of rows row.. and columns column.. into C, plus bias[columns] if there is one. columns <=
// kPanelBlocks * kBlockColumns.
void finish_tile(const Gemm& gemm, int64_t row, int64_t rows, int64_t column, int64_t columns, const float* bias,
                 const float* sums, int64_t stride);

// sums[c] = sum over rows of x[r][column + c], in chunks of 256 rows; columns <= kBlockColumns.
void sum_rows(rf_dtype dtype, const void* x, int64_t stride, int64_t rows, int64_t column, int64_t columns,
              float* sums);

// Whether the instruction set in use does.
bool multiplies_bf16_pairs();

}  // namespace rf::core
