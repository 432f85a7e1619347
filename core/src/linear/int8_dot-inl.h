// Bytes times bytes, for every instruction set: a lane of 32 bits holds four neighbours along the depth, 0..255 in a
// row and -127..127 in a column, and a lane of the sum adds all four products. All are exact.
//
//   VNNI          one instruction for the four, of AVX-512 or of AVX
//   AMX           the same for 16 rows by 16 columns by 16 lanes
//   AVX2, SSE4    bytes 0 and 2, and bytes 1 and 3, widened to 16 bits, of rows once for all columns; an instruction
//                 multiplies and adds two. (The instruction for bytes saturates.)
//   others        byte by byte in lanes of 32 bits
#if defined(RF_CORE_LINEAR_INT8_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_LINEAR_INT8_DOT_INL_H_
#undef RF_CORE_LINEAR_INT8_DOT_INL_H_
#else
#define RF_CORE_LINEAR_INT8_DOT_INL_H_
#endif

#include <cstring>

#include "common/amx_product-inl.h"
#include "common/cpu_features.h"
#include "common/float_vector-inl.h"
#include "hwy/highway.h"
#include "linear/gemm_int8_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// Whether kernels may use VNNI, if Int8InstructionDot::available().
#undef RF_HAVE_INT8_INSTRUCTION
#if (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2) && HWY_COMPILER_GCC
#define RF_HAVE_INT8_INSTRUCTION 1
#else
#define RF_HAVE_INT8_INSTRUCTION 0
#endif

using IntTag = hn::RebindToSigned<FloatTag>;
using IntVec = hn::Vec<IntTag>;

HWY_INLINE IntVec broadcast_unit(const uint8_t* from) {
  int32_t unit;
  std::memcpy(&unit, from, sizeof unit);
  return hn::Set(IntTag(), unit);
}
HWY_INLINE IntVec load_units(const int8_t* from) {
#if HWY_TARGET == HWY_SCALAR
  return broadcast_unit(reinterpret_cast<const uint8_t*>(from));
#else
  const hn::Repartition<int8_t, IntTag> d8;
  return hn::BitCast(IntTag(), hn::LoadU(d8, from));
#endif
}

#if RF_HAVE_INT8_INSTRUCTION
struct Int8InstructionDot {
  static constexpr bool kAvx512 = HWY_TARGET == HWY_AVX3;
  static constexpr int kRows = kAvx512 ? 8 : 4, kVectors = kAvx512 ? 3 : 2;  // sums that fit into registers
  static constexpr int64_t kRowUnit = kUnitDepth;                            // bytes of a unit in a quantised row
  using Columns = IntVec;
  static HWY_INLINE bool available() {
#if HWY_TARGET == HWY_AVX3
    return has_int8_instruction();
#else
    static const bool has = __builtin_cpu_supports("avxvnni") != 0;
    return has;
#endif
  }
  static HWY_INLINE IntVec row(const uint8_t* from) { return broadcast_unit(from); }
  static HWY_INLINE IntVec columns(const int8_t* from) { return load_units(from); }
  static HWY_INLINE IntVec add(IntVec row, IntVec columns, IntVec sum) {
#if HWY_TARGET == HWY_AVX3
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(row.raw), "v"(columns.raw));
#else
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(row.raw), "x"(columns.raw));
#endif
    return sum;
  }
};
#endif

#if RF_HAVE_BF16_INSTRUCTION
template <int kC, int kA, int kB>
HWY_INLINE void multiply_amx_bytes() {
  asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

inline HWY_NOINLINE void multiply_panel_in_amx(const Int8Tile& tile) {
  constexpr int kVectors = kPanelColumns / kLanes;
  AmxTiles amx;
  for (int64_t row = 0; row < tile.count; row += AmxTiles::kRows) {
    amx.set(std::min(AmxTiles::kRows, tile.count - row), 0);
    const uint8_t* a = tile.rows + row * tile.row_bytes;
    const int8_t* b = tile.panel;
    with_each<kVectors>([&](auto l) HWY_ATTR { clear_amx<l()>(); });
    for (int64_t unit = 0; unit < tile.units; unit += AmxTiles::kUnits) {
      load_amx<4>(a + unit * kUnitDepth, tile.row_bytes / kUnitDepth);
      with_each<kVectors>([&](auto l) HWY_ATTR {
        load_amx<5>(b + (unit * kPanelColumns + l() * kLanes) * kUnitDepth, kPanelColumns);
        multiply_amx_bytes<l(), 4, 5>();
      });
    }
    auto* sums = reinterpret_cast<float*>(tile.sums + row * kPanelColumns);  // their bits
    with_each<kVectors>([&](auto l) HWY_ATTR { store_amx<l()>(sums + l() * kLanes, kPanelColumns); });
  }
}
#endif

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
struct PortableDot {
  static constexpr int kRows = 4, kVectors = kLanes == 16 ? 3 : 2;
  static constexpr int64_t kRowUnit = 2 * kUnitDepth;
  using Tag16 = hn::Repartition<int16_t, IntTag>;
  using Vec16 = hn::Vec<Tag16>;
  struct Columns {
    Vec16 even, odd;
  };
  // Bytes 0 and 2 of each unit, then 1 and 3, as 16 bits; in place, from the back.
  static void widen_row(uint8_t* row, int64_t units) {
    const hn::RebindToUnsigned<IntTag> d;
    const auto low = hn::Set(d, 0x00FF00FF);
    auto* to = reinterpret_cast<uint32_t*>(row);
    for (int64_t unit = units - kLanes; unit >= 0; unit -= kLanes) {
      const auto bytes = hn::LoadU(d, to + unit);
      hn::StoreInterleaved2(hn::And(bytes, low), hn::And(hn::ShiftRight<8>(bytes), low), d, to + 2 * unit);
    }
  }
  static HWY_INLINE Columns row(const uint8_t* from) {
    return {hn::BitCast(Tag16(), broadcast_unit(from)), hn::BitCast(Tag16(), broadcast_unit(from + kUnitDepth))};
  }
  static HWY_INLINE Columns columns(const int8_t* from) {
    const auto bytes = hn::BitCast(Tag16(), load_units(from));
    return {hn::ShiftRight<8>(hn::ShiftLeft<8>(bytes)), hn::ShiftRight<8>(bytes)};
  }
  static HWY_INLINE IntVec add(const Columns& row, const Columns& columns, IntVec sum) {
    auto unused = hn::Zero(IntTag());
    sum = hn::ReorderWidenMulAccumulate(IntTag(), row.even, columns.even, sum, unused);
    return hn::ReorderWidenMulAccumulate(IntTag(), row.odd, columns.odd, sum, unused);
  }
};
#else
struct PortableDot {
  static constexpr int kRows = 4, kVectors = 2;
  static constexpr int64_t kRowUnit = kUnitDepth;
  struct Columns {
    IntVec at[kUnitDepth];
  };
  static void widen_row(uint8_t*, int64_t) {}
  static HWY_INLINE Columns row(const uint8_t* from) {
    const IntTag d;
    return {hn::Set(d, from[0]), hn::Set(d, from[1]), hn::Set(d, from[2]), hn::Set(d, from[3])};
  }
  static HWY_INLINE Columns columns(const int8_t* from) {
    const auto bytes = load_units(from);
    return {hn::ShiftRight<24>(hn::ShiftLeft<24>(bytes)), hn::ShiftRight<24>(hn::ShiftLeft<16>(bytes)),
            hn::ShiftRight<24>(hn::ShiftLeft<8>(bytes)), hn::ShiftRight<24>(bytes)};
  }
  static HWY_INLINE IntVec add(const Columns& row, const Columns& columns, IntVec sum) {
    for (int k = 0; k < kUnitDepth; ++k) sum = hn::Add(sum, hn::Mul(row.at[k], columns.at[k]));
    return sum;
  }
};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
