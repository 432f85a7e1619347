// Vectors of floats: read from and written to memory of any element type, parts of a vector at the end of a row, sums,
// and powers of two.
#if defined(RF_CORE_COMMON_FLOAT_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_COMMON_FLOAT_VECTOR_INL_H_
#undef RF_CORE_COMMON_FLOAT_VECTOR_INL_H_
#else
#define RF_CORE_COMMON_FLOAT_VECTOR_INL_H_
#endif

#include <limits>
#include <utility>

#include "common/element-inl.h"
#include "hwy/highway.h"
#include "rf/status.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(FloatTag()));
inline constexpr float kLog2e = 1.44269504088896340736f;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Calls action with 0, .. kCount - 1 as constants.
template <int kCount, class Action>
HWY_INLINE void with_each(const Action& action) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) HWY_ATTR {
    (action(std::integral_constant<int, kIndex>()), ...);
  }
  (std::make_integer_sequence<int, kCount>());
}

#if HWY_TARGET != HWY_SCALAR
HWY_INLINE FloatVec load_vector(const float* from) { return hn::LoadU(FloatTag(), from); }
HWY_INLINE FloatVec load_vector(const BFloat16* from) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const hn::Rebind<uint16_t, FloatTag> d16;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}
HWY_INLINE void store_vector(FloatVec value, float* to) { hn::StoreU(value, FloatTag(), to); }
// With AVX512_BF16 a result below 2^-126 in magnitude is 0.
HWY_INLINE void store_vector(FloatVec value, BFloat16* to) {
#if RF_HAVE_BF16_INSTRUCTION
  if (has_bf16_instruction()) {
    __m256i packed;
    asm("vcvtneps2bf16 %1, %0" : "=v"(packed) : "v"(value.raw));
    return _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), packed);
  }
#endif
  const hn::RebindToSigned<FloatTag> di;
  const hn::Rebind<uint16_t, FloatTag> d16;
  const auto bits = hn::ShiftRight<16>(IntegerRounding::rounded(FloatTag(), value));
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, bits)), d16, reinterpret_cast<uint16_t*>(to));
}
#if RF_HAVE_F16
HWY_INLINE FloatVec load_vector(const Float16* from) { return VectorElement<Float16>::load(FloatTag(), from); }
HWY_INLINE void store_vector(FloatVec value, Float16* to) {
  VectorElement<Float16>::store<Stores::kPlain>(FloatTag(), value, to);
}
#endif
#endif

template <class T>
inline constexpr bool kHasVectors = HWY_TARGET != HWY_SCALAR &&
                                    (!std::is_same_v<T, Float16> || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 ||
                                     HWY_TARGET == HWY_NEON);

// Calls action with an element of the type (only its type matters); float64 uses separate loops.
template <class Action>
HWY_INLINE void with_element(rf_dtype dtype, const Action& action) {
  switch (dtype) {
    case RF_F32: return action(float{});
    case RF_BF16: return action(BFloat16{});
    case RF_F16: return action(Float16{});
    case RF_F64: break;
  }
}

// The first `count` elements, or as many as a vector has; `otherwise` in the lanes after them.
template <class T>
HWY_NOINLINE FloatVec load_rest(const T* from, int64_t count, float otherwise) {
  alignas(64) float lanes[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = i < count ? to_arithmetic(from[i]) : otherwise;
  return hn::Load(FloatTag(), lanes);
}
template <class T>
HWY_INLINE FloatVec load_some(const T* from, int64_t count, float otherwise = 0) {
  if constexpr (kHasVectors<T>) {
    if (count >= kLanes) return load_vector(from);
  }
  return load_rest(from, count, otherwise);
}

template <class T>
HWY_NOINLINE void store_rest(FloatVec value, T* to, int64_t count) {
  alignas(64) float lanes[kLanes];
  hn::Store(value, FloatTag(), lanes);
  for (int64_t i = 0; i < kLanes && i < count; ++i) to[i] = from_arithmetic<T>(lanes[i]);
}
template <class T>
HWY_INLINE void store_some(FloatVec value, T* to, int64_t count) {
  if constexpr (kHasVectors<T>) {
    if (count >= kLanes) return store_vector(value, to);
  }
  store_rest(value, to, count);
}

// value in the first `count` lanes, 0 in the others.
HWY_INLINE FloatVec first_lanes(FloatVec value, int64_t count) {
  if (count >= kLanes) return value;
  return hn::IfThenElseZero(hn::FirstN(FloatTag(), static_cast<size_t>(count)), value);
}

// The sum of term(0), term(kLanes), .. below `count`, and then over the lanes, in four accumulators so that
// additions do not wait for each other.
template <class Term>
HWY_INLINE float sum_vectors(int64_t count, const Term& term) {
  const FloatTag d;
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    s0 = hn::Add(s0, term(i));
    s1 = hn::Add(s1, term(i + kLanes));
    s2 = hn::Add(s2, term(i + 2 * kLanes));
    s3 = hn::Add(s3, term(i + 3 * kLanes));
  }
  for (; i < count; i += kLanes) s0 = hn::Add(s0, term(i));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// 2^x for x up to about 0; relative error 2^-23; below 2^-126 it may be 0; NaN stays NaN.
#if HWY_TARGET == HWY_AVX3
HWY_INLINE FloatVec exp2(FloatVec x) {
  const FloatTag d;
  alignas(64) static constexpr float kSixteenths[16] = {// 2^(i/16)
                                                        0x1p+0f,        0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f,
                                                        0x1.306fep+0f,  0x1.3dea64p+0f, 0x1.4bfdaep+0f, 0x1.5ab07ep+0f,
                                                        0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f, 0x1.9c4918p+0f,
                                                        0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f};
  // x rounded to sixteenths, and the same in the last bits of a sum; the bits of the fraction index the table.
  const FloatVec rounded{_mm512_roundscale_ps(x.raw, 4 << 4 | _MM_FROUND_NO_EXC)};
  const auto shifted = hn::Add(x, hn::Set(d, 0x1.8p19f));
  const FloatVec power{_mm512_permutexvar_ps(_mm512_castps_si512(shifted.raw), _mm512_load_ps(kSixteenths))};
  const auto f = hn::Sub(x, rounded);
  // Minimax of (2^f - 1) / f in [-1/32, 1/32], relative error of 2^f 1.6e-9.
  auto y = hn::MulAdd(hn::Set(d, 0x1.c6ac6ap-5f), f, hn::Set(d, 0x1.ebfff4p-3f));
  y = hn::MulAdd(y, f, hn::Set(d, 0x1.62e43p-1f));
  y = hn::MulAdd(hn::Mul(power, f), y, power);
  // y 2^floor(rounded). Products of subnormal numbers would be some 100 times slower.
  const __mmask16 is_normal = _mm512_cmp_ps_mask(x.raw, _mm512_set1_ps(-126), _CMP_NLT_UQ);
  return FloatVec{_mm512_maskz_scalef_ps(is_normal, y.raw, rounded.raw)};
}
#else
HWY_INLINE FloatVec exp2(FloatVec x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  // The last bits of the sum are x rounded to an integer, which is moved into the exponent below.
  const auto magic = hn::Set(d, 0x1.8p23f);
  const auto shifted = hn::Add(x, magic);
  const auto f = hn::Sub(x, hn::Sub(shifted, magic));
  // Minimax of 2^f in [-1/2, 1/2], relative error 1.6e-8.
  auto y = hn::Set(d, 0x1.41d332p-13f);
  y = hn::MulAdd(y, f, hn::Set(d, 0x1.5f456ap-10f));
  y = hn::MulAdd(y, f, hn::Set(d, 0x1.3b2dbcp-7f));
  y = hn::MulAdd(y, f, hn::Set(d, 0x1.c6aed4p-5f));
  y = hn::MulAdd(y, f, hn::Set(d, 0x1.ebfbdap-3f));
  y = hn::MulAdd(y, f, hn::Set(d, 0x1.62e43p-1f));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0f));
  const auto scaled = hn::Add(hn::BitCast(di, y), hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  // The sum does not preserve the arbitrary bits of a NaN.
  return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::BitCast(d, scaled)));
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
