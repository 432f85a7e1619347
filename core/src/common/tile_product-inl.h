// The product of tiles for attention and linear layers, for blocks of rows by a few vectors:
//
//   C[i][l] = start[i][l] + sum_t A(i,t) B[t][l]       l: neighbours in memory, in the lanes
//
// Elements of A are read one by one and broadcast, with any stride between rows and along the depth, so A may be a
// transposed or a skewed view; a row of B or C is `vectors` vectors. The sum runs over t in order, in one
// accumulator for each element: bits do not depend on how rows fall into blocks.
//
//   f32   A and B are floats
//   bf16  A and B are pairs of bfloat16 in 32 bits, and a step of the sum adds both products (AVX512_BF16)
#if defined(RF_CORE_COMMON_TILE_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_COMMON_TILE_PRODUCT_INL_H_
#undef RF_CORE_COMMON_TILE_PRODUCT_INL_H_
#else
#define RF_CORE_COMMON_TILE_PRODUCT_INL_H_
#endif

#include "common/amx_tiles.h"
#include "common/element-inl.h"
#include "common/float_vector-inl.h"
#include "common/rows_ahead.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// The accumulators of a block fit into the registers: 8 x 3 of 32, or 4 x 3 of 16.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kBlockRows = 8;
#else
inline constexpr int kBlockRows = 4;
#endif
inline constexpr int kBlockVectors = 3;

struct Product {
  const void* a = nullptr;        // 32-bit elements
  int64_t a_row = 0, a_step = 0;  // strides between rows, and from one t to the next
  const void* b = nullptr;
  int64_t b_step = 0;
  const float* start = nullptr;  // zeros
  int64_t start_row = 0;         // 0: the same row for all
  float* c = nullptr;            // may be start
  int64_t c_row = 0;
  int64_t rows = 0, vectors = 0, depth = 0;  // depth: of the sum over t
  RowsAhead* ahead = nullptr;                // asked for between blocks
  AmxTiles* amx = nullptr;                   // of the kernel, where it multiplies pairs in tiles
};

struct FloatElements {
  using Element = float;
  static HWY_INLINE FloatVec broadcast(const float* a) { return hn::Set(FloatTag(), *a); }
  static HWY_INLINE FloatVec load(const float* b) { return hn::LoadU(FloatTag(), b); }
  static HWY_INLINE FloatVec add(FloatVec a, FloatVec b, FloatVec sum) { return hn::MulAdd(a, b, sum); }
};

#if RF_HAVE_BF16_INSTRUCTION
struct Bf16PairElements {
  using Element = uint32_t;
  using Tag = hn::RebindToUnsigned<FloatTag>;
  static HWY_INLINE hn::Vec<Tag> broadcast(const uint32_t* a) { return hn::Set(Tag(), *a); }
  static HWY_INLINE hn::Vec<Tag> load(const uint32_t* b) { return hn::LoadU(Tag(), b); }
  static HWY_INLINE FloatVec add(hn::Vec<Tag> a, hn::Vec<Tag> b, FloatVec sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
};
#endif

// Work to interleave with each step of a sum: nothing.
struct NothingBeside {
  HWY_INLINE void step() {}
};
// Prefetches lines of memory evenly: this many bytes further in each step.
struct LinesBeside {
  const char* next = nullptr;
  const char* until = next;
  int64_t bytes = 0;

  HWY_INLINE void step() {
    constexpr int64_t kLine = 64;
    until += bytes;
    for (; next < until; next += kLine) __builtin_prefetch(next, 0, 2);
  }
};

template <class Elements, int kRows, int kVectors, class Beside>
HWY_INLINE void multiply_block(const Product& p, int64_t row, int64_t vector, Beside& beside) {
  using Element = typename Elements::Element;
  const FloatTag d;
  const Element* a = static_cast<const Element*>(p.a) + row * p.a_row;
  const Element* b = static_cast<const Element*>(p.b) + vector * kLanes;
  const float* start = p.start == nullptr ? nullptr : p.start + row * p.start_row + vector * kLanes;
  FloatVec sums[kRows][kVectors];
  HWY_UNROLL(8)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int l = 0; l < kVectors; ++l) {
      sums[i][l] = start == nullptr ? hn::Zero(d) : hn::LoadU(d, start + i * p.start_row + l * kLanes);
    }
  }
  for (int64_t t = 0; t < p.depth; ++t, a += p.a_step, b += p.b_step) {
    decltype(Elements::load(b)) columns[kVectors];
    HWY_UNROLL(4)
    for (int l = 0; l < kVectors; ++l) columns[l] = Elements::load(b + l * kLanes);
    HWY_UNROLL(8)
    for (int i = 0; i < kRows; ++i) {
      const auto factor = Elements::broadcast(a + i * p.a_row);
      HWY_UNROLL(4)
      for (int l = 0; l < kVectors; ++l) sums[i][l] = Elements::add(factor, columns[l], sums[i][l]);
    }
    beside.step();
  }
  float* c = p.c + row * p.c_row + vector * kLanes;
  HWY_UNROLL(8)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int l = 0; l < kVectors; ++l) hn::StoreU(sums[i][l], d, c + i * p.c_row + l * kLanes);
  }
}

// All rows, kRows and then fewer at a time, by kVectors vectors. Each block of rows uses a new copy of the prefetcher.
template <class Elements, int kRows, int kVectors, class Beside>
HWY_INLINE void multiply_columns(const Product& p, int64_t vector, const Beside& beside) {
  int64_t row = 0;
  for (; row + kRows <= p.rows; row += kRows) {
    Beside own = beside;
    multiply_block<Elements, kRows, kVectors>(p, row, vector, own);
    if (p.ahead != nullptr) p.ahead->step();
  }
  Beside own = beside;
  if (kRows > 4 && row + 4 <= p.rows) {
    multiply_block<Elements, 4, kVectors>(p, row, vector, own);
    row += 4, own = beside;
  }
  if (row + 2 <= p.rows) {
    multiply_block<Elements, 2, kVectors>(p, row, vector, own);
    row += 2, own = beside;
  }
  if (row < p.rows) multiply_block<Elements, 1, kVectors>(p, row, vector, own);
}

template <class Elements>
HWY_NOINLINE void multiply(const Product& p) {
  int64_t vector = 0;
  // Four vectors are two and two: three and one would leave the accumulators of the one waiting for each other.
  for (; p.vectors - vector >= kBlockVectors && p.vectors - vector != 4; vector += kBlockVectors) {
    multiply_columns<Elements, kBlockRows, kBlockVectors>(p, vector, NothingBeside());
  }
  for (; p.vectors - vector >= 2; vector += 2) multiply_columns<Elements, kBlockRows, 2>(p, vector, NothingBeside());
  if (vector < p.vectors) multiply_columns<Elements, kBlockRows, 1>(p, vector, NothingBeside());
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
