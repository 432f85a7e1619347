// The product of tile_product-inl.h for pairs of bfloat16 in AMX tiles: 16 rows by up to four vectors of C in
// registers, 16 pairs of the sum in each step. Rows of A are contiguous (a_step 1).
//
// An element of C is the sum of its steps, in order, and depends only on its row of A and its column of B. A step sums
// the products of the pairs' lower halves and the products of the upper halves, and then adds both; numbers below
// 2^-126 count as zero, and rounding is to nearest even.
#if defined(RF_CORE_COMMON_AMX_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_COMMON_AMX_PRODUCT_INL_H_
#undef RF_CORE_COMMON_AMX_PRODUCT_INL_H_
#else
#define RF_CORE_COMMON_AMX_PRODUCT_INL_H_
#endif

#include <algorithm>

#include "common/amx_tiles.h"
#include "common/tile_product-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

#if RF_HAVE_BF16_INSTRUCTION
// Register kTile, from or to rows with a stride of `stride` 32-bit units.
template <int kTile>
HWY_INLINE void load_amx(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(4 * stride), "i"(kTile) : "memory");
}
template <int kTile>
HWY_INLINE void store_amx(float* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(4 * stride), "i"(kTile) : "memory");
}
template <int kTile>
HWY_INLINE void clear_amx() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kC, int kA, int kB>
HWY_INLINE void multiply_amx() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

// One step of the sum for kVectors registers of C.
template <int kVectors, int kA, int kB>
HWY_INLINE void add_amx(const uint32_t* a, int64_t a_row, const uint32_t* b, int64_t b_step) {
  load_amx<kA>(a, a_row);
  with_each<kVectors>([&](auto l) HWY_ATTR {
    load_amx<kB>(b + l() * kLanes, b_step);
    multiply_amx<l(), kA, kB>();
  });
}

template <int kVectors>
HWY_INLINE void multiply_amx_block(const Product& p, int64_t row, int64_t vector) {
  const uint32_t* a = static_cast<const uint32_t*>(p.a) + row * p.a_row;
  const uint32_t* b = static_cast<const uint32_t*>(p.b) + vector * kLanes;
  float* c = p.c + row * p.c_row + vector * kLanes;
  if (p.start == nullptr) {
    with_each<kVectors>([&](auto l) HWY_ATTR { clear_amx<l()>(); });
  } else {
    const float* start = p.start + row * p.start_row + vector * kLanes;
    with_each<kVectors>([&](auto l) HWY_ATTR { load_amx<l()>(start + l() * kLanes, p.start_row); });
  }
  int64_t t = 0;
  for (; t + AmxTiles::kUnits <= p.depth; t += AmxTiles::kUnits) {
    add_amx<kVectors, 4, 5>(a + t, p.a_row, b + t * p.b_step, p.b_step);
  }
  if (t < p.depth) add_amx<kVectors, 6, 7>(a + t, p.a_row, b + t * p.b_step, p.b_step);
  with_each<kVectors>([&](auto l) HWY_ATTR { store_amx<l()>(c + l() * kLanes, p.c_row); });
}

inline HWY_NOINLINE void multiply_in_amx(const Product& p) {
  for (int64_t row = 0; row < p.rows; row += AmxTiles::kRows) {
    p.amx->set(std::min(AmxTiles::kRows, p.rows - row), p.depth % AmxTiles::kUnits);
    int64_t vector = 0;
    for (; p.vectors - vector >= 4; vector += 4) multiply_amx_block<4>(p, row, vector);
    if (p.vectors - vector == 3) multiply_amx_block<3>(p, row, vector);
    if (p.vectors - vector == 2) multiply_amx_block<2>(p, row, vector);
    if (p.vectors - vector == 1) multiply_amx_block<1>(p, row, vector);
    if (p.ahead != nullptr) p.ahead->step();
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
