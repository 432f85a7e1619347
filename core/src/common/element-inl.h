// Element types inside the kernels, compiled once for every instruction set: reads a vector, or a single element, of
// each type into arithmetic and rounds it back, to nearest even. A NaN stays a NaN (quieted).
//
// bfloat16 uses 32-bit lanes: a lane holds two neighbours. The float of the odd one is the lane with its lower half
// cleared; the float of the even one is the lane shifted up:
//
//   bits    [ x1 | x0 ]      upper(bits) = [ x1 | 0 ]      lower(bits) = [ x0 | 0 ]
#if defined(RF_CORE_COMMON_ELEMENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_COMMON_ELEMENT_INL_H_
#undef RF_CORE_COMMON_ELEMENT_INL_H_
#else
#define RF_CORE_COMMON_ELEMENT_INL_H_
#endif

#include <cstring>

#include "common/cpu_features.h"
#include "common/scalar_element.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether kernels may use AVX512_BF16, if has_bf16_instruction(): to round, and to multiply pairs.
#undef RF_HAVE_BF16_INSTRUCTION
#if HWY_TARGET == HWY_AVX3 && HWY_COMPILER_GCC
#define RF_HAVE_BF16_INSTRUCTION 1
#else
#define RF_HAVE_BF16_INSTRUCTION 0
#endif

#if HWY_TARGET != HWY_SCALAR

// Instruction sets whose float16 conversions round to nearest even in hardware.
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
#define RF_HAVE_F16 0
#else
#define RF_HAVE_F16 1
#endif

// Streaming stores need an aligned target.
template <Stores kStores, class D, class T>
HWY_INLINE void put(D d, hn::Vec<D> value, T* to) {
  if constexpr (kStores == Stores::kStreaming) {
    hn::Stream(value, d, to);
  } else {
    hn::StoreU(value, d, to);
  }
}

// Vectors of float32 and float64 are read and written unchanged.
template <class T>
struct VectorElement {
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const T* from) {
    return hn::LoadU(d, from);
  }
  template <Stores kStores, class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, T* to) {
    put<kStores>(d, value, to);
  }
};

#if RF_HAVE_F16
template <>
struct VectorElement<Float16> {
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Float16* from) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
  }
  template <Stores kStores, class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, Float16* to) {
    const hn::Rebind<hwy::float16_t, D> d16;
    const hn::RebindToUnsigned<decltype(d16)> du16;
    put<kStores>(du16, hn::BitCast(du16, hn::DemoteTo(d16, value)), reinterpret_cast<uint16_t*>(to));
  }
};
#endif

template <class DF, class VU>
HWY_INLINE hn::Vec<DF> bf16_lower(DF df, VU bits) {
  return hn::BitCast(df, hn::ShiftLeft<16>(bits));
}

template <class DF, class VU>
HWY_INLINE hn::Vec<DF> bf16_upper(DF df, VU bits) {
  const hn::RebindToUnsigned<DF> du;
  return hn::BitCast(df, hn::And(bits, hn::Set(du, 0xFFFF0000u)));
}

// Two vectors of floats, rounded, as one vector of bfloat16 pairs [ upper | lower ]. Two ways with the same result.
struct IntegerRounding {
  // The upper 16 bits of each lane are the bfloat16 nearest to the float; the lower 16 bits are undefined.
  template <class DF>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> rounded(DF df, hn::Vec<DF> value) {
    const hn::RebindToUnsigned<DF> du;
    const auto bits = hn::BitCast(du, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto nearest = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
    const auto quiet = hn::Or(bits, hn::Set(du, 0x00400000));
    return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, nearest);
  }

  template <class DF>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> pairs(DF df, hn::Vec<DF> lower, hn::Vec<DF> upper) {
    const hn::RebindToUnsigned<DF> du;
    return hn::OrAnd(hn::ShiftRight<16>(rounded(df, lower)), rounded(df, upper), hn::Set(du, 0xFFFF0000u));
  }
};

#if RF_HAVE_BF16_INSTRUCTION
// AVX512_BF16 rounds two vectors in one instruction. Highway does not offer that instruction set here, so the
// instruction is written out and chosen at run time. It flushes results below 2^-126 in magnitude to zero.
struct InstructionRounding {
  template <class DF>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> pairs(DF df, hn::Vec<DF> lower, hn::Vec<DF> upper) {
    const hn::RebindToUnsigned<DF> du;
    if constexpr (hn::MaxLanes(df) == 16) {
      __m512i packed;  // lower in the lower half of the vector, upper in the upper half
      asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(packed) : "v"(upper.raw), "v"(lower.raw));
      alignas(64) static constexpr uint16_t kInterleave[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                               21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                               11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
      return hn::Vec<decltype(du)>{_mm512_permutexvar_epi16(_mm512_load_si512(kInterleave), packed)};
    } else {
      return IntegerRounding::pairs(df, lower, upper);
    }
  }
};
#endif

template <class DU>
HWY_INLINE hn::Vec<DU> load_bf16_pairs(DU du, const BFloat16* from) {
  const hn::Repartition<uint16_t, DU> d16;
  return hn::BitCast(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)));
}

template <Stores kStores, class DU>
HWY_INLINE void store_bf16_pairs(DU du, hn::Vec<DU> bits, BFloat16* to) {
  (void)du;
  const hn::Repartition<uint16_t, DU> d16;
  put<kStores>(d16, hn::BitCast(d16, bits), reinterpret_cast<uint16_t*>(to));
}

#endif  // HWY_TARGET != HWY_SCALAR

// Copies with streaming stores; bytes before the first and after the last whole vector of the target use ordinary
// stores.
HWY_INLINE void stream_bytes(const uint8_t* from, uint8_t* to, size_t bytes) {
#if HWY_TARGET == HWY_SCALAR
  std::memcpy(to, from, bytes);
#else
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  const size_t misaligned = reinterpret_cast<uintptr_t>(to) % lanes;
  size_t done = misaligned == 0 ? 0 : HWY_MIN(bytes, lanes - misaligned);
  std::memcpy(to, from, done);
  for (; done + lanes <= bytes; done += lanes) hn::Stream(hn::LoadU(d, from + done), d, to + done);
  std::memcpy(to + done, from + done, bytes - done);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
