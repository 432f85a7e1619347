// Rows of tokens between the memory of the caller (any type, any stride) and work space: floats, one row per token,
// padded with zeros to whole vectors.
#if defined(RF_CORE_COMMON_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_COMMON_ROWS_INL_H_
#undef RF_CORE_COMMON_ROWS_INL_H_
#else
#define RF_CORE_COMMON_ROWS_INL_H_
#endif

#include <algorithm>

#include "common/element.h"
#include "common/float_vector-inl.h"
#include "common/rows_ahead.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// Rows of one head: row t begins at data + t * stride elements.
struct HeadRows {
  const void* data;
  int64_t stride;
};

// The rows of an array whose element `offset` is the first of row 0.
HWY_INLINE HeadRows head_rows(rf_dtype dtype, const void* data, int64_t offset, int64_t stride) {
  return {static_cast<const char*>(data) + offset * element_bytes(dtype), stride};
}

// Rows of a head of the arrays in a call's arguments.
template <class Args>
HWY_INLINE HeadRows query_rows(const Args& x, int64_t b, int64_t h) {
  return head_rows(x.dtype, x.q, b * x.q_stride_b + h * x.q_stride_h, x.q_stride_t);
}
template <class Args>
HWY_INLINE HeadRows key_rows(const Args& x, int64_t b, int64_t key_head) {
  return head_rows(x.dtype, x.k, b * x.k_stride_b + key_head * x.k_stride_h, x.k_stride_t);
}
template <class Args>
HWY_INLINE HeadRows value_rows(const Args& x, int64_t b, int64_t key_head) {
  return head_rows(x.dtype, x.v, b * x.v_stride_b + key_head * x.v_stride_h, x.v_stride_t);
}
// Rows of the output, or of its gradient.
template <class Args>
HWY_INLINE HeadRows out_rows(rf_dtype dtype, const Args& x, int64_t b, int64_t h) {
  return head_rows(dtype, x.out, b * x.out_stride_b + h * x.out_stride_h, x.out_stride_t);
}

template <Access kAccess>
HWY_INLINE void add_rows_ahead(HeadRows rows, int64_t first, int64_t count, int64_t columns, int64_t element,
                               RowsAhead& ahead) {
  const int64_t stride = rows.stride * element;
  ahead.add<kAccess>(static_cast<const char*>(rows.data) + first * stride, stride, count, columns * element);
}

template <class T>
void load_rows_of(const T* from, int64_t stride, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r, from += stride, to += to_stride) {
    int64_t i = 0;
    if constexpr (kHasVectors<T>) {
      for (; i + kLanes <= columns; i += kLanes) hn::StoreU(load_vector(from + i), FloatTag(), to + i);
    }
    for (; i < columns; ++i) to[i] = to_arithmetic(from[i]);
    if (i < to_stride) std::fill(to + i, to + to_stride, 0.0f);
  }
}

// `to_stride` floats of every row are written: columns, then zeros.
inline HWY_NOINLINE void load_rows(rf_dtype dtype, HeadRows from, int64_t first, int64_t rows, int64_t columns,
                                   float* to, int64_t to_stride) {
  const int64_t offset = first * from.stride;
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    load_rows_of(static_cast<const T*>(from.data) + offset, from.stride, rows, columns, to, to_stride);
  });
}

template <class T>
void store_row_of(const float* from, int64_t columns, float factor, T* to) {
  int64_t i = 0;
  if constexpr (kHasVectors<T>) {
    const FloatTag d;
    for (; i + kLanes <= columns; i += kLanes) {
      store_vector(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, factor)), to + i);
    }
  }
  for (; i < columns; ++i) to[i] = from_arithmetic<T>(from[i] * factor);
}

// `columns` floats times a factor, rounded to the type, from element `offset` of `to` on.
HWY_INLINE void store_row(rf_dtype dtype, const float* from, int64_t columns, float factor, void* to, int64_t offset) {
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    store_row_of(from, columns, factor, static_cast<T*>(to) + offset);
  });
}

// Rows of 32-bit elements [rows, columns] to [columns, to_stride]; columns a multiple of four.
inline HWY_NOINLINE void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                                   int64_t to_stride) {
  int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> dd;
  for (; r + 4 <= rows; r += 4) {
    for (int64_t c = 0; c < columns; c += 4) {
      const float* x = from + r * from_stride + c;
      const auto x0 = hn::LoadU(d, x), x1 = hn::LoadU(d, x + from_stride);
      const auto x2 = hn::LoadU(d, x + 2 * from_stride), x3 = hn::LoadU(d, x + 3 * from_stride);
      const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, x0, x1));  // x0[0] x1[0] x0[1] x1[1]
      const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, x2, x3));
      const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, x0, x1));
      const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, x2, x3));
      float* y = to + c * to_stride + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, low01, low23)), d, y);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23)), d, y + to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, high01, high23)), d, y + 2 * to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23)), d, y + 3 * to_stride);
    }
  }
#endif
  for (; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
}

// x . y over whole vectors.
HWY_INLINE float dot(const float* x, const float* y, int64_t count) {
  const FloatTag d;
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < count; i += kLanes) sum = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// y += factor x over whole vectors.
HWY_INLINE void add_scaled(float factor, const float* x, int64_t count, float* y) {
  const FloatTag d;
  const auto f = hn::Set(d, factor);
  for (int64_t i = 0; i < count; i += kLanes) {
    hn::StoreU(hn::MulAdd(f, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  }
}

// x[i] *= factors[i] for rows of `stride` floats.
inline HWY_NOINLINE void scale_rows(const float* factors, int64_t rows, int64_t stride, float* x) {
  const FloatTag d;
  for (int64_t r = 0; r < rows; ++r, x += stride) {
    const auto factor = hn::Set(d, factors[r]);
    for (int64_t i = 0; i < stride; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), factor), d, x + i);
  }
}

#if RF_HAVE_BF16_INSTRUCTION
// A row of floats, whole vectors, as bfloat16.
HWY_INLINE void narrow_row(const float* from, int64_t columns, uint32_t* to) {
  auto* narrow = reinterpret_cast<uint16_t*>(to);
  const FloatTag d;
  int64_t i = 0;
  for (; i + 2 * kLanes <= columns; i += 2 * kLanes) {
    __m512i both;
    asm("vcvtne2ps2bf16 %2, %1, %0"
        : "=v"(both)
        : "v"(hn::LoadU(d, from + i + kLanes).raw), "v"(hn::LoadU(d, from + i).raw));
    _mm512_storeu_si512(narrow + i, both);
  }
  if (i == columns) return;
  store_vector(hn::LoadU(d, from + i), reinterpret_cast<BFloat16*>(narrow + i));
}

HWY_INLINE void store_pairs(FloatVec even, FloatVec odd, uint32_t* to) {
  const hn::RebindToUnsigned<FloatTag> du;
  hn::StoreU(InstructionRounding::pairs(FloatTag(), even, odd), du, to);
}

// Two rows of floats as one row of bfloat16 pairs: `even` in the lower halves.
HWY_INLINE void pair_rows(const float* even, const float* odd, int64_t columns, uint32_t* pairs) {
  const FloatTag d;
  for (int64_t i = 0; i < columns; i += kLanes) {
    store_pairs(hn::LoadU(d, even + i), hn::LoadU(d, odd + i), pairs + i);
  }
}
#else
HWY_INLINE void store_pairs(FloatVec, FloatVec, uint32_t*) {}
#endif

// Neighbouring rows as pairs; a row of zeros completes the last pair.
HWY_INLINE void pair_neighbours(float* rows, int64_t count, int64_t width, uint32_t* pairs) {
#if RF_HAVE_BF16_INSTRUCTION
  if (count % 2 != 0) std::fill_n(rows + count * width, width, 0.0f);
  for (int64_t i = 0; i < count; i += 2)
    pair_rows(rows + i * width, rows + (i + 1) * width, width, pairs + i / 2 * width);
#else
  (void)rows, (void)count, (void)width, (void)pairs;
#endif
}

HWY_INLINE void narrow_rows(const float* rows, int64_t count, int64_t width, uint32_t* to) {
#if RF_HAVE_BF16_INSTRUCTION
  for (int64_t i = 0; i < count; ++i) narrow_row(rows + i * width, width, to + i * width / 2);
#else
  (void)rows, (void)count, (void)width, (void)to;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
