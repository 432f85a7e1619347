// The parts of an int8 product (gemm_int8.h) by the best instruction set.
#pragma once

#include "linear/gemm_int8.h"

namespace rf::core {

// x = scale (byte - zero); a scale of NaN marks a row with an element that is infinite or not a number.
struct Int8RowScale {
  float scale;
  int32_t zero;
};

// The size of a unit in a quantised row: kUnitDepth bytes, or twice as many for products of 16 bits.
int64_t row_unit_bytes();

// Quantises a row of x, times `factors` unless nullptr, to `bytes` bytes, a multiple of kDepthStep. to: bytes /
// kUnitDepth units of row_unit_bytes().
Int8RowScale quantize_row(rf_dtype dtype, const void* x, const float* factors, int64_t count, uint8_t* to,
                          int64_t bytes);

// W, whose columns are multiplied by `factors` unless nullptr.
struct Int8Source {
  const float* weight = nullptr;
  int64_t stride = 0;
  const float* factors = nullptr;
};

// Packs panel `panel` of `to`; a column with a weight that is infinite or not a number gets the scale NaN. space:
// kPanelColumns times to.units().
void pack_panel(const Int8Source& from, int64_t panel, Int8Weight& to, uint32_t* space);

// Quantised rows times a panel.
struct Int8Tile {
  const uint8_t* rows = nullptr;
  int64_t row_bytes = 0;  // from one to the next
  int64_t count = 0;
  const int8_t* panel = nullptr;
  int64_t units = 0;
  int32_t* sums = nullptr;  // [count][kPanelColumns]
};
void multiply_panel(const Int8Tile& tile);

// Sums of a tile to rows of y: scales them and adds the bias, if any.
struct Int8Finish {
  const int32_t* sums = nullptr;
  const Int8RowScale* rows = nullptr;
  int64_t count = 0;
  const float* column_scales = nullptr;
  const int32_t* column_sums = nullptr;
  int64_t columns = 0;  // <= kPanelColumns
  const float* bias = nullptr;
  rf_dtype dtype = RF_F32;
  void* y = nullptr;
  int64_t y_stride = 0;
};
void scale_panel(const Int8Finish& finish);

// Floats [rows][kPanelColumns] to rows of y.
void store_panel(const float* from, int64_t rows, int64_t columns, rf_dtype dtype, void* y, int64_t y_stride);

}  // namespace rf::core
