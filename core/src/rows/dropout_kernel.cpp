// Dropout kernel: Philox4x32-10 (Salmon et al. 2011) in vectors, then the mask (rf/dropout.h has the definition).
//
// A 64-bit lane carries one block of eight elements. Each of the four counter words sits in the lower half of a lane,
// so that the 32 x 32 -> 64 bit product of a round is one multiplication; its rest in the upper half of the next word
// is never read. After ten rounds the words are packed into two vectors of 64 bits per block, and stored interleaved
// they are the sixteen-bit numbers in element order:
//
//   block j      [ w1 | w0 ] [ w3 | w2 ]     numbers of elements 8j .. 8j + 7, low half first
//
// The numbers of a chunk go through a buffer in the first-level cache; a second loop reads them together with the
// elements.
#include "rows/kernels.h"

#include <algorithm>

#include "common/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rows/dropout_kernel.cpp"
#include "hwy/foreach_target.h"
// Lists the targets, then compiles this file for each one.
#include "common/element-inl.h"
#include "hwy/highway.h"
#include "rows/philox.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

inline constexpr int64_t kBlock = kDropoutBlock;

#if HWY_TARGET == HWY_SCALAR

void draw(uint64_t block, int64_t count, uint64_t seed, uint64_t stream, uint16_t* numbers) {
  for (int64_t i = 0; i < count; i += kBlock, ++block) {
    const auto words = philox4x32_10({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                      static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                                     {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    for (size_t w = 0; w < 4; ++w) {
      numbers[i + 2 * static_cast<int64_t>(w)] = static_cast<uint16_t>(words[w]);
      numbers[i + 2 * static_cast<int64_t>(w) + 1] = static_cast<uint16_t>(words[w] >> 16);
    }
  }
}

#else

template <class D64>
HWY_INLINE hn::Vec<D64> product(D64 d, hn::Vec<D64> word, uint32_t factor) {
  const hn::Repartition<uint32_t, D64> d32;
  return hn::MulEven(hn::BitCast(d32, word), hn::BitCast(d32, hn::Set(d, factor)));
}

void draw(uint64_t block, int64_t count, uint64_t seed, uint64_t stream, uint16_t* numbers) {
  const hn::ScalableTag<uint64_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto low_word = hn::Set(d, 0xFFFFFFFFu);
  for (int64_t i = 0; i < count; i += kBlock * lanes, block += static_cast<uint64_t>(lanes)) {
    const auto index = hn::Add(hn::Set(d, block), hn::Iota(d, 0));
    auto c0 = index;
    auto c1 = hn::ShiftRight<32>(index);
    auto c2 = hn::Set(d, stream);
    auto c3 = hn::Set(d, stream >> 32);
    auto key0 = static_cast<uint32_t>(seed);
    auto key1 = static_cast<uint32_t>(seed >> 32);
    HWY_UNROLL(10)
    for (int round = 0; round < 10; ++round) {
      const auto p0 = product(d, c0, 0xD2511F53u);
      const auto p1 = product(d, c2, 0xCD9E8D57u);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, key0));
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, key1));
      c1 = p1;
      c3 = p0;
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    const auto first = hn::Or(hn::And(c0, low_word), hn::ShiftLeft<32>(c1));
    const auto second = hn::Or(hn::And(c2, low_word), hn::ShiftLeft<32>(c3));
    hn::StoreInterleaved2(first, second, d, reinterpret_cast<uint64_t*>(numbers + i));
  }
}

// Whole vectors of a run of elements; returns how many elements that was.
template <class T>
HWY_INLINE int64_t drop_vectors(const T* x, T* y, const uint16_t* numbers, int64_t count, uint32_t threshold,
                                float scale) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto last_dropped = hn::Set(di, static_cast<int32_t>(threshold) - 1);
  const auto factor = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto kept = hn::Gt(hn::PromoteTo(di, hn::LoadU(d16, numbers + i)), last_dropped);
    const auto value = hn::Mul(VectorElement<T>::load(d, x + i), factor);
    VectorElement<T>::template store<Stores::kPlain>(d, hn::IfThenElseZero(hn::RebindMask(d, kept), value), y + i);
  }
  return i;
}

// The same for pairs of bfloat16 in 32-bit lanes.
template <class Rounding>
HWY_INLINE int64_t drop_bf16(const BFloat16* x, BFloat16* y, const uint16_t* numbers, int64_t count, uint32_t threshold,
                             float scale) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Repartition<int16_t, decltype(d)> d16;
  const auto lanes = 2 * static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, scale);
  // Sixteen-bit comparisons are signed: both sides are moved down by 2^15.
  const auto shift = hn::Set(d16, INT16_MIN);
  const auto lowest_kept = hn::Set(d16, static_cast<int16_t>(threshold ^ 0x8000u));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto bits = load_bf16_pairs(du, x + i);
    const auto even = hn::Mul(bf16_lower(d, bits), factor);
    const auto odd = hn::Mul(bf16_upper(d, bits), factor);
    const auto number = hn::Xor(hn::LoadU(d16, reinterpret_cast<const int16_t*>(numbers) + i), shift);
    const auto dropped = hn::Lt(number, lowest_kept);
    const auto scaled = hn::BitCast(d16, Rounding::pairs(d, even, odd));
    store_bf16_pairs<Stores::kPlain>(du, hn::BitCast(du, hn::IfThenZeroElse(dropped, scaled)), y + i);
  }
  return i;
}

#endif  // HWY_TARGET == HWY_SCALAR

template <class T>
struct Run {
  const T* x;
  T* y;
  const uint16_t* numbers;
  int64_t count;
  uint32_t threshold;
  Arithmetic<T> scale;
};

template <class T>
HWY_INLINE int64_t drop_fast(const Run<T>& run) {
#if HWY_TARGET == HWY_SCALAR
  (void)run;
  return 0;
#else
  if constexpr (std::is_same_v<T, BFloat16>) {
#if RF_HAVE_BF16_INSTRUCTION
    if (has_bf16_instruction()) {
      return drop_bf16<InstructionRounding>(run.x, run.y, run.numbers, run.count, run.threshold, run.scale);
    }
#endif
    return drop_bf16<IntegerRounding>(run.x, run.y, run.numbers, run.count, run.threshold, run.scale);
  } else if constexpr (std::is_same_v<T, float> || (std::is_same_v<T, Float16> && RF_HAVE_F16)) {
    return drop_vectors(run.x, run.y, run.numbers, run.count, run.threshold, run.scale);
  } else {
    return 0;
  }
#endif
}

template <class T>
void drop(const void* x, void* y, int64_t first, int64_t count, uint32_t threshold, uint64_t seed, uint64_t stream) {
  alignas(64) uint16_t numbers[kDropoutChunk];
  const auto scale = static_cast<Arithmetic<T>>(65536.0 / (65536.0 - threshold));
  for (int64_t done = 0; done < count; done += kDropoutChunk) {
    const int64_t at = first + done;
    draw(static_cast<uint64_t>(at / kBlock), kDropoutChunk, seed, stream, numbers);
    const Run<T> run{static_cast<const T*>(x) + at,
                     static_cast<T*>(y) + at,
                     numbers,
                     std::min(kDropoutChunk, count - done),
                     threshold,
                     scale};
    for (int64_t i = drop_fast(run); i < run.count; ++i) {
      const bool kept = numbers[i] >= threshold;
      run.y[i] = from_arithmetic<T>(kept ? to_arithmetic(run.x[i]) * scale : Arithmetic<T>{0});
    }
  }
}

void draw_any(int64_t block, int64_t count, uint64_t seed, uint64_t stream, uint16_t* numbers) {
#if HWY_TARGET != HWY_SCALAR
  static_assert(kBlock * hn::MaxLanes(hn::ScalableTag<uint64_t>()) <= kMaxDrawnAtOnce);
#endif
  draw(static_cast<uint64_t>(block), count, seed, stream, numbers);
}

void drop_any(rf_dtype dtype, const void* x, void* y, int64_t first, int64_t count, uint32_t threshold, uint64_t seed,
              uint64_t stream) {
  switch (dtype) {
    case RF_F32: return drop<float>(x, y, first, count, threshold, seed, stream);
    case RF_F64: return drop<double>(x, y, first, count, threshold, seed, stream);
    case RF_BF16: return drop<BFloat16>(x, y, first, count, threshold, seed, stream);
    case RF_F16: return drop<Float16>(x, y, first, count, threshold, seed, stream);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rf::core {

HWY_EXPORT(draw_any);
HWY_EXPORT(drop_any);

void draw_numbers(int64_t block, int64_t count, uint64_t seed, uint64_t stream, uint16_t* numbers) {
  HWY_DYNAMIC_DISPATCH(draw_any)(block, count, seed, stream, numbers);
}

void drop_elements(rf_dtype dtype, const void* x, void* y, int64_t first, int64_t count, uint32_t threshold,
                   uint64_t seed, uint64_t stream) {
  HWY_DYNAMIC_DISPATCH(drop_any)(dtype, x, y, first, count, threshold, seed, stream);
}

}  // namespace rf::core
#endif
