// The matrix product behind int8 linear layers (rf_linear_pack_int8 has the equations): x is quantised row by row to
// bytes in 0..255, W was quantised column by column of the product to -127..127, and their sums are integers, so no bit
// depends on the instruction set or on how the product is divided:
//
//   y[i][j] = act(bias[j] + scale_i scale_j (sum_t x8[i][t] w8[j][t] - zero_i sum_t w8[j][t]))
//
// W is held in panels of 48 columns, three vectors of AVX-512, so that a pass over it reads memory from the front to
// the back; a unit of 32 bits is four neighbours along the depth, which one instruction multiplies and adds:
//
//   [panel][unit][48][4]       zeros behind the last column and the last depth
#pragma once

#include <cstdint>

#include "common/aligned_array.h"
#include "rf/linear.h"

namespace rf::core {

inline constexpr int64_t kPanelColumns = 48;
inline constexpr int64_t kUnitDepth = 4;
inline constexpr int64_t kDepthStep = 64;  // the depth is rounded up to it: an AMX register's row
// 255 * 127 * 2^16, the largest sum, is below 2^31.
inline constexpr int64_t kMaxInt8Depth = int64_t{1} << 16;

inline int64_t int8_units(int64_t depth) { return (depth + kDepthStep - 1) / kDepthStep * (kDepthStep / kUnitDepth); }
inline int64_t int8_panels(int64_t columns) { return (columns + kPanelColumns - 1) / kPanelColumns; }

struct Int8Weight {
  int64_t in = 0, out = 0;
  AlignedArray<int8_t> values;
  AlignedArray<float> scales;  // of whole panels, as sums
  AlignedArray<int32_t> sums;  // over the depth
  // The reciprocals of the scales that inputs are divided by, [in]; nullptr: not divided.
  AlignedArray<float> factors;

  int64_t units() const { return int8_units(in); }
  int64_t panels() const { return int8_panels(out); }
  int64_t panel_bytes() const { return units() * kPanelColumns * kUnitDepth; }
  const int8_t* panel(int64_t index) const { return values.get() + index * panel_bytes(); }
  int8_t at(int64_t column, int64_t depth) const {
    const int64_t unit = depth / kUnitDepth, lane = column % kPanelColumns;
    return panel(column / kPanelColumns)[(unit * kPanelColumns + lane) * kUnitDepth + depth % kUnitDepth];
  }
};

// Throws InvalidArgument if a scaled element is infinite or not a number. input_scales: [in], or nullptr.
Int8Weight pack_int8(int64_t in, int64_t out, const float* weight, int64_t stride, const float* input_scales);

// rf_linear_forward with checked arguments; ignores the weight in `args`.
void multiply_int8(const rf_linear_args& args, const Int8Weight& weight);

}  // namespace rf::core
