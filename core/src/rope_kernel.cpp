// Rotary kernel (RoFormer Eq. 34, spec R-ROPE-06), for tiles of a few tokens by all heads:
//
//   y_a = c x_a - s x_b        (a, b) = (2i, 2i+1) in pairs, (i, i + R/2) in halves
//   y_b = s x_a + c x_b
//
// Every table row serves all heads of its token, so what a layout wants of the row is arranged once a token:
//
//   pairs,  f32 f64 f16   x      x0    x1    x2    x3  ...       y = C x + S swap(x)
//                         C      c0    c0    c1    c1
//                         S     -s0    s0   -s1    s1
//   halves, f32 f64 f16   rows as they are; a and b are two runs of the same head
//   pairs,  bf16          rows as they are; a 32-bit lane is one pair (element-inl.h)
//   halves, bf16          rows split into even and odd i, as the lanes of a and b are
//
// Bits depend on the instruction set, not on the number of threads or the place of the token in a tile. It does not form
// angles, choose positions or start threads.
#include "rope_kernel.h"

#include <algorithm>

#include "simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/rope_kernel.cpp"
#include "hwy/foreach_target.h"
// The list of targets, then each of them.
#include "element-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// A table row as it came (cos, sin) and as the layout wants it.
template <class A>
struct Row {
  const A* cos;
  const A* sin;
  A* arranged_cos;
  A* arranged_sin;
  A sign;  // of the sine
};

template <class T>
HWY_INLINE void rotate_one(const Row<Arithmetic<T>>& row, const T* x, T* y, int64_t i, int64_t a, int64_t b) {
  using A = Arithmetic<T>;
  const A c = row.cos[i];
  const A s = row.sign * row.sin[i];
  const A x_a = to_arithmetic(x[a]);
  const A x_b = to_arithmetic(x[b]);
  y[a] = from_arithmetic<T>(c * x_a - s * x_b);
  y[b] = from_arithmetic<T>(s * x_a + c * x_b);
}

// One pair at a time; also the end of a row after its last whole vector.
template <class T>
struct ScalarPairs {
  static HWY_INLINE void arrange(const Row<Arithmetic<T>>&, int64_t) {}
  static HWY_INLINE void rotate(const Row<Arithmetic<T>>& row, const T* x, T* y, int64_t n, int64_t i = 0) {
    for (; i < n; ++i) rotate_one(row, x, y, i, 2 * i, 2 * i + 1);
  }
};

template <class T>
struct ScalarHalves {
  static HWY_INLINE void arrange(const Row<Arithmetic<T>>&, int64_t) {}
  static HWY_INLINE void rotate(const Row<Arithmetic<T>>& row, const T* x, T* y, int64_t n, int64_t i = 0) {
    for (; i < n; ++i) rotate_one(row, x, y, i, i, i + n);
  }
};

template <class T>
struct Pairs : ScalarPairs<T> {};
template <class T>
struct Halves : ScalarHalves<T> {};

#if HWY_TARGET != HWY_SCALAR

template <class T>
struct VectorPairs {
  using A = Arithmetic<T>;

  static HWY_INLINE void arrange(const Row<A>& row, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const A s = row.sign * row.sin[i];
      row.arranged_cos[2 * i] = row.arranged_cos[2 * i + 1] = row.cos[i];
      row.arranged_sin[2 * i] = -s;
      row.arranged_sin[2 * i + 1] = s;
    }
  }

  // Elements from j on, whole vectors of d only; returns where it stopped.
  template <class D>
  static HWY_INLINE int64_t run(D d, const Row<A>& row, const T* x, T* y, int64_t end, int64_t j) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; j + lanes <= end; j += lanes) {
      const auto value = VectorElement<T>::load(d, x + j);
      const auto along = hn::Mul(hn::LoadU(d, row.arranged_cos + j), value);
      VectorElement<T>::store(d, hn::MulAdd(hn::LoadU(d, row.arranged_sin + j), hn::Reverse2(d, value), along), y + j);
    }
    return j;
  }

  static HWY_INLINE void rotate(const Row<A>& row, const T* x, T* y, int64_t n) {
    int64_t j = run(hn::ScalableTag<A>(), row, x, y, 2 * n, 0);
    j = run(hn::Full128<A>(), row, x, y, 2 * n, j);
    ScalarPairs<T>::rotate(row, x, y, n, j / 2);
  }
};

template <class T>
struct VectorHalves {
  using A = Arithmetic<T>;

  static HWY_INLINE void arrange(const Row<A>&, int64_t) {}

  template <class D>
  static HWY_INLINE int64_t run(D d, const Row<A>& row, const T* x, T* y, int64_t n, int64_t i) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto sign = hn::Set(d, row.sign);
    for (; i + lanes <= n; i += lanes) {
      const auto c = hn::LoadU(d, row.cos + i);
      const auto s = hn::Mul(sign, hn::LoadU(d, row.sin + i));
      const auto a = VectorElement<T>::load(d, x + i);
      const auto b = VectorElement<T>::load(d, x + n + i);
      VectorElement<T>::store(d, hn::NegMulAdd(s, b, hn::Mul(c, a)), y + i);
      VectorElement<T>::store(d, hn::MulAdd(s, a, hn::Mul(c, b)), y + n + i);
    }
    return i;
  }

  static HWY_INLINE void rotate(const Row<A>& row, const T* x, T* y, int64_t n) {
    int64_t i = run(hn::ScalableTag<A>(), row, x, y, n, 0);
    i = run(hn::Full128<A>(), row, x, y, n, i);
    ScalarHalves<T>::rotate(row, x, y, n, i);
  }
};

template <>
struct VectorPairs<BFloat16> {
  static HWY_INLINE void arrange(const Row<float>&, int64_t) {}

  template <class D>
  static HWY_INLINE int64_t run(D d, const Row<float>& row, const BFloat16* x, BFloat16* y, int64_t n, int64_t i) {
    const hn::RebindToUnsigned<D> du;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto sign = hn::Set(d, row.sign);
    for (; i + lanes <= n; i += lanes) {
      const auto c = hn::LoadU(d, row.cos + i);
      const auto s = hn::Mul(sign, hn::LoadU(d, row.sin + i));
      const auto bits = load_bf16_pairs(du, x + 2 * i);
      const auto a = bf16_lower(d, bits);
      const auto b = bf16_upper(d, bits);
      const auto y_a = hn::NegMulAdd(s, b, hn::Mul(c, a));
      const auto y_b = hn::MulAdd(s, a, hn::Mul(c, b));
      store_bf16_pairs(du, bf16_pairs(d, y_a, y_b), y + 2 * i);
    }
    return i;
  }

  static HWY_INLINE void rotate(const Row<float>& row, const BFloat16* x, BFloat16* y, int64_t n) {
    int64_t i = run(hn::ScalableTag<float>(), row, x, y, n, 0);
    i = run(hn::Full128<float>(), row, x, y, n, i);
    ScalarPairs<BFloat16>::rotate(row, x, y, n, i);
  }
};

template <>
struct VectorHalves<BFloat16> {
  // Even i in the first half of the arranged row, odd i from n / 2 on.
  static HWY_INLINE void arrange(const Row<float>& row, int64_t n) {
    for (int64_t i = 0; i + 2 <= n; i += 2) {
      row.arranged_cos[i / 2] = row.cos[i];
      row.arranged_cos[n / 2 + i / 2] = row.cos[i + 1];
      row.arranged_sin[i / 2] = row.sign * row.sin[i];
      row.arranged_sin[n / 2 + i / 2] = row.sign * row.sin[i + 1];
    }
  }

  template <class D>
  static HWY_INLINE int64_t run(D d, const Row<float>& row, const BFloat16* x, BFloat16* y, int64_t n, int64_t i) {
    const hn::RebindToUnsigned<D> du;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const int64_t odd = n / 2;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const float* cos = row.arranged_cos + i / 2;
      const float* sin = row.arranged_sin + i / 2;
      const auto c_even = hn::LoadU(d, cos), c_odd = hn::LoadU(d, cos + odd);
      const auto s_even = hn::LoadU(d, sin), s_odd = hn::LoadU(d, sin + odd);
      const auto a = load_bf16_pairs(du, x + i);
      const auto b = load_bf16_pairs(du, x + n + i);
      const auto a_even = bf16_lower(d, a), a_odd = bf16_upper(d, a);
      const auto b_even = bf16_lower(d, b), b_odd = bf16_upper(d, b);
      const auto y_a = bf16_pairs(d, hn::NegMulAdd(s_even, b_even, hn::Mul(c_even, a_even)),
                                  hn::NegMulAdd(s_odd, b_odd, hn::Mul(c_odd, a_odd)));
      const auto y_b = bf16_pairs(d, hn::MulAdd(s_even, a_even, hn::Mul(c_even, b_even)),
                                  hn::MulAdd(s_odd, a_odd, hn::Mul(c_odd, b_odd)));
      store_bf16_pairs(du, y_a, y + i);
      store_bf16_pairs(du, y_b, y + n + i);
    }
    return i;
  }

  static HWY_INLINE void rotate(const Row<float>& row, const BFloat16* x, BFloat16* y, int64_t n) {
    int64_t i = run(hn::ScalableTag<float>(), row, x, y, n, 0);
    i = run(hn::Full128<float>(), row, x, y, n, i);
    ScalarHalves<BFloat16>::rotate(row, x, y, n, i);
  }
};

template <>
struct Pairs<float> : VectorPairs<float> {};
template <>
struct Halves<float> : VectorHalves<float> {};
template <>
struct Pairs<double> : VectorPairs<double> {};
template <>
struct Halves<double> : VectorHalves<double> {};
template <>
struct Pairs<BFloat16> : VectorPairs<BFloat16> {};
template <>
struct Halves<BFloat16> : VectorHalves<BFloat16> {};
#if RF_HAVE_F16
template <>
struct Pairs<Float16> : VectorPairs<Float16> {};
template <>
struct Halves<Float16> : VectorHalves<Float16> {};
#endif

#endif  // HWY_TARGET != HWY_SCALAR

// A head: its rotated part, then what is passed on.
template <class Kernel, class T>
HWY_INLINE void rotate_head(const RopeTile& tile, const Row<Arithmetic<T>>& row, const T* x, T* y) {
  Kernel::rotate(row, x, y, tile.num_freqs);
  const int64_t rotary_dim = 2 * tile.num_freqs;
  if (rotary_dim < tile.head_dim && x != y) {
    std::memcpy(y + rotary_dim, x + rotary_dim, sizeof(T) * static_cast<size_t>(tile.head_dim - rotary_dim));
  }
}

// The two loops of a tile, the one with the smaller stride inside.
struct Loop {
  int64_t count, x_stride, y_stride;
};

template <class Kernel, class T>
void rotate_plain(const RopeTile& tile, const Row<Arithmetic<T>>* rows, Loop outer, Loop inner, bool token_is_outer) {
  for (int64_t i = 0; i < outer.count; ++i) {
    const T* x = static_cast<const T*>(tile.x) + i * outer.x_stride;
    T* y = static_cast<T*>(tile.y) + i * outer.y_stride;
    for (int64_t j = 0; j < inner.count; ++j) {
      rotate_head<Kernel>(tile, rows[token_is_outer ? i : j], x + j * inner.x_stride, y + j * inner.y_stride);
    }
  }
}

inline constexpr int64_t kStageBytes = 16 * 1024;

// Results are collected in a stage that stays in the first-level cache and leave it in whole lines.
template <class Kernel, class T>
void rotate_streaming(const RopeTile& tile, const Row<Arithmetic<T>>* rows, Loop outer, Loop inner, bool token_is_outer,
                      T* stage) {
  const int64_t head_bytes = tile.head_dim * static_cast<int64_t>(sizeof(T));
  const int64_t group = std::max<int64_t>(1, kStageBytes / head_bytes);
  for (int64_t i = 0; i < outer.count; ++i) {
    const T* x = static_cast<const T*>(tile.x) + i * outer.x_stride;
    T* y = static_cast<T*>(tile.y) + i * outer.y_stride;
    for (int64_t first = 0; first < inner.count; first += group) {
      const int64_t count = std::min(group, inner.count - first);
      for (int64_t j = 0; j < count; ++j) {
        rotate_head<Kernel>(tile, rows[token_is_outer ? i : first + j], x + (first + j) * inner.x_stride,
                            stage + j * tile.head_dim);
      }
      stream_bytes(reinterpret_cast<const uint8_t*>(stage), reinterpret_cast<uint8_t*>(y + first * inner.y_stride),
                   static_cast<size_t>(count * head_bytes));
    }
  }
}

template <class Kernel, class T>
void rotate(const RopeTile& tile) {
  using A = Arithmetic<T>;
  const int64_t n = tile.num_freqs;
  auto* arranged = static_cast<A*>(tile.scratch);
  Row<A> rows[kMaxTileTokens];
  for (int64_t t = 0; t < tile.tokens; ++t, arranged += 4 * n) {
    const auto* row = static_cast<const A*>(tile.rows[t]);
    const A sign = tile.turn == Turn::kCounterClockwise ? A{1} : A{-1};
    rows[t] = {row, row + n, arranged, arranged + 2 * n, sign};
    Kernel::arrange(rows[t], n);
  }
  const Loop tokens{tile.tokens, tile.x_stride_t, tile.y_stride_t};
  const Loop heads{tile.heads, tile.x_stride_h, tile.y_stride_h};
  const bool token_is_outer = tile.y_stride_t >= tile.y_stride_h;
  const Loop outer = token_is_outer ? tokens : heads;
  const Loop inner = token_is_outer ? heads : tokens;
  if (tile.stores == Stores::kPlain) {
    rotate_plain<Kernel, T>(tile, rows, outer, inner, token_is_outer);
  } else {
    rotate_streaming<Kernel, T>(tile, rows, outer, inner, token_is_outer, reinterpret_cast<T*>(arranged));
  }
}

template <class T>
void rotate_elements(rf_rope_layout layout, const RopeTile& tile) {
  if (layout == RF_ROPE_PAIRS) {
    rotate<Pairs<T>, T>(tile);
  } else {
    rotate<Halves<T>, T>(tile);
  }
}

void rotate_any(rf_dtype dtype, rf_rope_layout layout, const RopeTile& tile) {
  switch (dtype) {
    case RF_F32:
      return rotate_elements<float>(layout, tile);
    case RF_F64:
      return rotate_elements<double>(layout, tile);
    case RF_BF16:
      return rotate_elements<BFloat16>(layout, tile);
    case RF_F16:
      return rotate_elements<Float16>(layout, tile);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rf::core {

HWY_EXPORT(rotate_any);

void rotate_tile(rf_dtype dtype, rf_rope_layout layout, const RopeTile& tile) {
  HWY_DYNAMIC_DISPATCH(rotate_any)(dtype, layout, tile);
}

int64_t rope_scratch_bytes(int64_t tokens, int64_t num_freqs, int64_t head_dim) {
  constexpr int64_t kWidest = sizeof(double);
  const int64_t stage = std::max(HWY_STATIC_DISPATCH(kStageBytes), head_dim * kWidest);
  return tokens * 4 * num_freqs * kWidest + stage;
}

void finish_streaming() { hwy::FlushStream(); }

}  // namespace rf::core
#endif
