// Weights that keep the bits of a file's blocks (rf_linear_pack_blocks), in the order in which products read them:
//
//   [block of 64 columns][span of the depth] d u16[64] | m u16[64] | steps; a span is a block of the file
//   a step, 32 elements of the depth: scales | codes
//
//   scales  one level: u16 [64], or u16 [64] and minimums u16 [64]
//           two levels: per group of 16 or 32 elements, steps of d (and of m) as bytes [64]
//   codes   2, 3, 4, 5 or 6 bits: planes of b = 4, 2 or 1 bits, u32 [b][64]: a lane of 32 bits has 32 / b neighbours
//           along the depth; 3 bits are planes of 2 and 1, 5 of 4 and 1, 6 of 4 and 2
//           8 bits: int8 [32][64]
//           16 bits: u16 [32][64], without scales
//
// An element is value(code) scale + minimum in float32. The product is exact, so the element is rounded at most once
// and equals the file's. Products unpack blocks to floats and then run as with float weights: the bits are the same.
#pragma once

#include <cstdint>

#include "common/aligned_array.h"
#include "linear/gemm.h"

namespace rf::core {

inline constexpr int64_t kStepDepth = 32, kMaxSpanDepth = 256, kSpanGroups = 16;

enum class BlockScales {
  kNone,
  kHalf,          // d
  kHalfMinimum,   // d, m
  kBfloat16,      // d as bfloat16
  kSteps,         // d, int8
  kStepsMinimum,  // d, m, and for each group two bytes
  kNibbles,       // d, m, and for each group a byte: the step of d in the lower half
};

// A block of a row, unpacked to integers.
struct BlockFields {
  uint8_t codes[kMaxSpanDepth];
  uint16_t scale, minimum;
  uint8_t steps[kSpanGroups], minimum_steps[kSpanGroups];
};

struct BlockForm {
  rf_block_type type;
  const char* name;
  int64_t elements, bytes;  // of a block in the file
  int bits;                 // of a code
  BlockScales scales;
  int64_t group;         // elements that share a scale
  int zero;              // the value of code 0 is -zero, if there is neither a minimum nor a table
  const int8_t* values;  // of 16 codes, or nullptr
  void (*read)(const uint8_t* block, BlockFields& to);  // nullptr for 16 bits

  int64_t groups_of_step() const { return kStepDepth / group; }
  int64_t scale_bytes() const;  // of a step
  int64_t code_bytes() const { return bits * kStepDepth / 8 * kBlockColumns; }
  int64_t step_bytes() const { return scale_bytes() + code_bytes(); }
  int64_t top_bytes() const;  // of a span, before its steps
  int64_t span_depth() const { return elements == 1 ? kStepDepth : elements; }
  int64_t span_bytes() const { return top_bytes() + span_depth() / kStepDepth * step_bytes(); }
};

// nullptr for an unknown type.
const BlockForm* find_block_form(rf_block_type type);

struct BlockWeight {
  const BlockForm* form = nullptr;
  int64_t in = 0, out = 0;
  AlignedArray<uint8_t> bytes;

  int64_t spans() const { return (in + form->span_depth() - 1) / form->span_depth(); }
  int64_t block_bytes() const { return spans() * form->span_bytes(); }  // of 64 columns
  const uint8_t* span(int64_t block, int64_t index) const {
    return bytes.get() + block * block_bytes() + index * form->span_bytes();
  }
  // An element, in plain code.
  double at(int64_t column, int64_t depth) const;
};

// rows: [out], each of in / elements blocks. Throws InvalidArgument if an element is infinite or not a number.
BlockWeight pack_blocks(const BlockForm& form, int64_t in, int64_t out, const void* const* rows);

// Elements depth .. depth + count - 1 of a block of 64 columns to floats [count][64]; depth is a multiple of
// kMaxSpanDepth. `to` has room for whole steps.
void unpack_block(const BlockWeight& weight, int64_t block, int64_t depth, int64_t count, float* to);

// sums[j] = sum_t x[t] B(t, j) over the whole depth for a block of 64 columns, with the bits of multiply_tile().
void multiply_row(const BlockWeight& weight, int64_t block, const float* x, float* sums);

}  // namespace rf::core
