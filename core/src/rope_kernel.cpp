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
#include <type_traits>

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

// The heads of one token, or one head of several calls: rows of x and y that share a table row.
template <class T>
struct Heads {
  const T* x;
  T* y;
  int64_t count, x_stride, y_stride;
};

// Indices of the elements of pair i.
struct PairIndex {
  static HWY_INLINE int64_t first(int64_t i, int64_t) { return 2 * i; }
  static HWY_INLINE int64_t second(int64_t i, int64_t) { return 2 * i + 1; }
};
struct HalfIndex {
  static HWY_INLINE int64_t first(int64_t i, int64_t) { return i; }
  static HWY_INLINE int64_t second(int64_t i, int64_t n) { return i + n; }
};

// Pairs i .. n - 1, one at a time: what is left of a row after its last whole vector.
template <class Index, class T>
HWY_INLINE void rotate_rest(const Row<Arithmetic<T>>& row, const Heads<T>& heads, int64_t n, int64_t i) {
  using A = Arithmetic<T>;
  for (; i < n; ++i) {
    const A c = row.cos[i];
    const A s = row.sign * row.sin[i];
    const int64_t first = Index::first(i, n), second = Index::second(i, n);
    for (int64_t h = 0; h < heads.count; ++h) {
      const T* x = heads.x + h * heads.x_stride;
      T* y = heads.y + h * heads.y_stride;
      const A a = to_arithmetic(x[first]);
      const A b = to_arithmetic(x[second]);
      y[first] = from_arithmetic<T>(c * a - s * b);
      y[second] = from_arithmetic<T>(s * a + c * b);
    }
  }
}

template <class LayoutIndex, class T>
struct Scalar {
  using Index = LayoutIndex;
  using Element = T;
  static HWY_INLINE void arrange(const Row<Arithmetic<T>>&, int64_t) {}
};

#if HWY_TARGET != HWY_SCALAR

// A kernel below says how many pairs one vector step rotates, which coefficients the step needs (two or four vectors,
// kept in registers over the heads) and what it does with a head.

template <class T>
struct VectorPairs {
  using A = Arithmetic<T>;
  using Index = PairIndex;
  using Element = T;
  template <class D>
  static HWY_INLINE int64_t step(D d) {
    return static_cast<int64_t>(hn::Lanes(d)) / 2;
  }

  static HWY_INLINE void arrange(const Row<A>& row, int64_t n) {
    const hn::ScalableTag<A> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto sign = hn::Set(d, row.sign);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      const auto c = hn::LoadU(d, row.cos + i);
      const auto s = hn::Mul(sign, hn::LoadU(d, row.sin + i));
      hn::StoreInterleaved2(c, c, d, row.arranged_cos + 2 * i);
      hn::StoreInterleaved2(hn::Neg(s), s, d, row.arranged_sin + 2 * i);
    }
    for (; i < n; ++i) {
      const A s = row.sign * row.sin[i];
      row.arranged_cos[2 * i] = row.arranged_cos[2 * i + 1] = row.cos[i];
      row.arranged_sin[2 * i] = -s;
      row.arranged_sin[2 * i + 1] = s;
    }
  }

  template <class D>
  struct Coefficients {
    HWY_INLINE void load(D d, const Row<A>& row, int64_t i, int64_t) {
      c = hn::LoadU(d, row.arranged_cos + 2 * i);
      s = hn::LoadU(d, row.arranged_sin + 2 * i);
    }
    HWY_INLINE void rotate(D d, const T* x, T* y, int64_t i, int64_t) const {
      const auto value = VectorElement<T>::load(d, x + 2 * i);
      VectorElement<T>::store(d, hn::MulAdd(s, hn::Reverse2(d, value), hn::Mul(c, value)), y + 2 * i);
    }
    hn::Vec<D> c, s;
  };
};

template <class T>
struct VectorHalves {
  using A = Arithmetic<T>;
  using Index = HalfIndex;
  using Element = T;
  template <class D>
  static HWY_INLINE int64_t step(D d) {
    return static_cast<int64_t>(hn::Lanes(d));
  }

  static HWY_INLINE void arrange(const Row<A>&, int64_t) {}

  template <class D>
  struct Coefficients {
    HWY_INLINE void load(D d, const Row<A>& row, int64_t i, int64_t) {
      c = hn::LoadU(d, row.cos + i);
      s = hn::Mul(hn::Set(d, row.sign), hn::LoadU(d, row.sin + i));
    }
    HWY_INLINE void rotate(D d, const T* x, T* y, int64_t i, int64_t n) const {
      const auto a = VectorElement<T>::load(d, x + i);
      const auto b = VectorElement<T>::load(d, x + n + i);
      VectorElement<T>::store(d, hn::NegMulAdd(s, b, hn::Mul(c, a)), y + i);
      VectorElement<T>::store(d, hn::MulAdd(s, a, hn::Mul(c, b)), y + n + i);
    }
    hn::Vec<D> c, s;
  };
};

template <class Rounding>
struct Bf16Pairs {
  using Index = PairIndex;
  using Element = BFloat16;
  template <class D>
  static HWY_INLINE int64_t step(D d) {
    return static_cast<int64_t>(hn::Lanes(d));
  }

  static HWY_INLINE void arrange(const Row<float>&, int64_t) {}

  template <class D>
  struct Coefficients {
    HWY_INLINE void load(D d, const Row<float>& row, int64_t i, int64_t) {
      c = hn::LoadU(d, row.cos + i);
      s = hn::Mul(hn::Set(d, row.sign), hn::LoadU(d, row.sin + i));
    }
    HWY_INLINE void rotate(D d, const BFloat16* x, BFloat16* y, int64_t i, int64_t) const {
      const hn::RebindToUnsigned<D> du;
      const auto bits = load_bf16_pairs(du, x + 2 * i);
      const auto a = bf16_lower(d, bits);
      const auto b = bf16_upper(d, bits);
      const auto y_a = hn::NegMulAdd(s, b, hn::Mul(c, a));
      const auto y_b = hn::MulAdd(s, a, hn::Mul(c, b));
      store_bf16_pairs(du, Rounding::pairs(d, y_a, y_b), y + 2 * i);
    }
    hn::Vec<D> c, s;
  };
};

template <class Rounding>
struct Bf16Halves {
  using Index = HalfIndex;
  using Element = BFloat16;
  template <class D>
  static HWY_INLINE int64_t step(D d) {
    return 2 * static_cast<int64_t>(hn::Lanes(d));
  }

  // Even i in the first half of the arranged row, odd i from n / 2 on.
  static HWY_INLINE void arrange(const Row<float>& row, int64_t n) {
    const hn::ScalableTag<float> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto sign = hn::Set(d, row.sign);
    float* odd_cos = row.arranged_cos + n / 2;
    float* odd_sin = row.arranged_sin + n / 2;
    int64_t i = 0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      hn::Vec<decltype(d)> even, odd;
      hn::LoadInterleaved2(d, row.cos + i, even, odd);
      hn::StoreU(even, d, row.arranged_cos + i / 2);
      hn::StoreU(odd, d, odd_cos + i / 2);
      hn::LoadInterleaved2(d, row.sin + i, even, odd);
      hn::StoreU(hn::Mul(sign, even), d, row.arranged_sin + i / 2);
      hn::StoreU(hn::Mul(sign, odd), d, odd_sin + i / 2);
    }
    for (; i + 2 <= n; i += 2) {
      row.arranged_cos[i / 2] = row.cos[i];
      odd_cos[i / 2] = row.cos[i + 1];
      row.arranged_sin[i / 2] = row.sign * row.sin[i];
      odd_sin[i / 2] = row.sign * row.sin[i + 1];
    }
  }

  template <class D>
  struct Coefficients {
    HWY_INLINE void load(D d, const Row<float>& row, int64_t i, int64_t n) {
      c_even = hn::LoadU(d, row.arranged_cos + i / 2);
      c_odd = hn::LoadU(d, row.arranged_cos + i / 2 + n / 2);
      s_even = hn::LoadU(d, row.arranged_sin + i / 2);
      s_odd = hn::LoadU(d, row.arranged_sin + i / 2 + n / 2);
    }
    HWY_INLINE void rotate(D d, const BFloat16* x, BFloat16* y, int64_t i, int64_t n) const {
      const hn::RebindToUnsigned<D> du;
      const auto a = load_bf16_pairs(du, x + i);
      const auto b = load_bf16_pairs(du, x + n + i);
      const auto a_even = bf16_lower(d, a), a_odd = bf16_upper(d, a);
      const auto b_even = bf16_lower(d, b), b_odd = bf16_upper(d, b);
      const auto y_a = Rounding::pairs(d, hn::NegMulAdd(s_even, b_even, hn::Mul(c_even, a_even)),
                                       hn::NegMulAdd(s_odd, b_odd, hn::Mul(c_odd, a_odd)));
      const auto y_b = Rounding::pairs(d, hn::MulAdd(s_even, a_even, hn::Mul(c_even, b_even)),
                                       hn::MulAdd(s_odd, a_odd, hn::Mul(c_odd, b_odd)));
      store_bf16_pairs(du, y_a, y + i);
      store_bf16_pairs(du, y_b, y + n + i);
    }
    hn::Vec<D> c_even, c_odd, s_even, s_odd;
  };
};

// kSteps vector steps from pair i on, for all heads.
template <class Kernel, int kSteps, class D, class T>
HWY_INLINE void rotate_steps(D d, const Row<Arithmetic<T>>& row, const Heads<T>& heads, int64_t n, int64_t i) {
  const int64_t step = Kernel::step(d);
  typename Kernel::template Coefficients<D> coefficients[kSteps];
  HWY_UNROLL(4)
  for (int k = 0; k < kSteps; ++k) coefficients[k].load(d, row, i + k * step, n);
  const T* x = heads.x;
  T* y = heads.y;
  for (int64_t h = 0; h < heads.count; ++h, x += heads.x_stride, y += heads.y_stride) {
    HWY_UNROLL(4)
    for (int k = 0; k < kSteps; ++k) coefficients[k].rotate(d, x, y, i + k * step, n);
  }
}

// As many steps of kSteps vectors as fit from pair i on; returns the next pair.
template <class Kernel, int kSteps, class D, class T>
HWY_INLINE int64_t rotate_many(D d, const Row<Arithmetic<T>>& row, const Heads<T>& heads, int64_t n, int64_t i) {
  const int64_t pairs = kSteps * Kernel::step(d);
  for (; i + pairs <= n; i += pairs) rotate_steps<Kernel, kSteps>(d, row, heads, n, i);
  return i;
}

#endif  // HWY_TARGET != HWY_SCALAR

template <class Kernel, class T>
HWY_INLINE void rotate_heads(const RopeTile& tile, const Row<Arithmetic<T>>& row, const Heads<T>& heads) {
  const int64_t n = tile.num_freqs;
  int64_t i = 0;
  if constexpr (!std::is_base_of_v<Scalar<typename Kernel::Index, T>, Kernel>) {
#if HWY_TARGET != HWY_SCALAR
    const hn::ScalableTag<Arithmetic<T>> widest;
    const hn::Full128<Arithmetic<T>> narrow;
    i = rotate_many<Kernel, 4>(widest, row, heads, n, i);
    i = rotate_many<Kernel, 2>(widest, row, heads, n, i);
    i = rotate_many<Kernel, 1>(widest, row, heads, n, i);
    i = rotate_many<Kernel, 1>(narrow, row, heads, n, i);
#endif
  }
  rotate_rest<typename Kernel::Index>(row, heads, n, i);
  const int64_t rotary_dim = 2 * n;
  if (rotary_dim == tile.head_dim || heads.x == heads.y) return;
  for (int64_t h = 0; h < heads.count; ++h) {
    std::memcpy(heads.y + h * heads.y_stride + rotary_dim, heads.x + h * heads.x_stride + rotary_dim,
                sizeof(T) * static_cast<size_t>(tile.head_dim - rotary_dim));
  }
}

inline constexpr int64_t kStageBytes = 16 * 1024;

// Results are collected in a stage that stays in the first-level cache and leave it in whole lines.
template <class Kernel, class T>
HWY_INLINE void stream_heads(const RopeTile& tile, const Row<Arithmetic<T>>& row, const Heads<T>& heads, T* stage) {
  const int64_t head_bytes = tile.head_dim * static_cast<int64_t>(sizeof(T));
  const int64_t group = std::max<int64_t>(1, kStageBytes / head_bytes);
  for (int64_t h = 0; h < heads.count; h += group) {
    const int64_t count = std::min(group, heads.count - h);
    rotate_heads<Kernel, T>(tile, row, {heads.x + h * heads.x_stride, stage, count, heads.x_stride, tile.head_dim});
    stream_bytes(reinterpret_cast<const uint8_t*>(stage), reinterpret_cast<uint8_t*>(heads.y + h * heads.y_stride),
                 static_cast<size_t>(count * head_bytes));
  }
}

template <class Kernel, class A>
HWY_INLINE Row<A> arranged_row(const RopeTile& tile, int64_t t, A* space) {
  const int64_t n = tile.num_freqs;
  const auto* row = static_cast<const A*>(tile.rows[t]);
  const Row<A> result{row, row + n, space, space + 2 * n, tile.turn == Turn::kCounterClockwise ? A{1} : A{-1}};
  Kernel::arrange(result, n);
  return result;
}

// Heads of a token follow each other in memory.
template <class Kernel>
void rotate_token_major(const RopeTile& tile) {
  using T = typename Kernel::Element;
  using A = Arithmetic<T>;
  auto* space = static_cast<A*>(tile.scratch);
  auto* stage = reinterpret_cast<T*>(space + 4 * tile.num_freqs);
  const T* x = static_cast<const T*>(tile.x);
  T* y = static_cast<T*>(tile.y);
  for (int64_t t = 0; t < tile.tokens; ++t, x += tile.x_stride_t, y += tile.y_stride_t) {
    const Row<A> row = arranged_row<Kernel>(tile, t, space);
    const Heads<T> heads{x, y, tile.heads, tile.x_stride_h, tile.y_stride_h};
    if (tile.stores == Stores::kPlain) {
      rotate_heads<Kernel, T>(tile, row, heads);
    } else {
      stream_heads<Kernel, T>(tile, row, heads, stage);
    }
  }
}

// Tokens of a head follow each other in memory.
template <class Kernel>
void rotate_head_major(const RopeTile& tile) {
  using T = typename Kernel::Element;
  using A = Arithmetic<T>;
  auto* space = static_cast<A*>(tile.scratch);
  Row<A> rows[kMaxTileTokens];
  for (int64_t t = 0; t < tile.tokens; ++t) rows[t] = arranged_row<Kernel>(tile, t, space + t * 4 * tile.num_freqs);
  for (int64_t h = 0; h < tile.heads; ++h) {
    const T* x = static_cast<const T*>(tile.x) + h * tile.x_stride_h;
    T* y = static_cast<T*>(tile.y) + h * tile.y_stride_h;
    for (int64_t t = 0; t < tile.tokens; ++t, x += tile.x_stride_t, y += tile.y_stride_t) {
      rotate_heads<Kernel, T>(tile, rows[t], {x, y, 1, 0, 0});
    }
  }
}

template <class Kernel>
void rotate(const RopeTile& tile) {
  if (tile.y_stride_t < tile.y_stride_h) {
    rotate_head_major<Kernel>(tile);
  } else {
    rotate_token_major<Kernel>(tile);
  }
}

#if HWY_TARGET == HWY_SCALAR
template <class T>
using Pairs = Scalar<PairIndex, T>;
template <class T>
using Halves = Scalar<HalfIndex, T>;
#else
template <class T>
using Pairs = VectorPairs<T>;
template <class T>
using Halves = VectorHalves<T>;
#endif

template <class PairsKernel, class HalvesKernel>
void rotate_layout(rf_rope_layout layout, const RopeTile& tile) {
  if (layout == RF_ROPE_PAIRS) {
    rotate<PairsKernel>(tile);
  } else {
    rotate<HalvesKernel>(tile);
  }
}

void rotate_bf16(rf_rope_layout layout, const RopeTile& tile) {
#if HWY_TARGET == HWY_SCALAR
  rotate_layout<Pairs<BFloat16>, Halves<BFloat16>>(layout, tile);
#else
#if RF_HAVE_BF16_INSTRUCTION
  if (has_bf16_instruction()) {
    return rotate_layout<Bf16Pairs<InstructionRounding>, Bf16Halves<InstructionRounding>>(layout, tile);
  }
#endif
  rotate_layout<Bf16Pairs<IntegerRounding>, Bf16Halves<IntegerRounding>>(layout, tile);
#endif
}

void rotate_f16(rf_rope_layout layout, const RopeTile& tile) {
#if HWY_TARGET != HWY_SCALAR && !RF_HAVE_F16
  rotate_layout<Scalar<PairIndex, Float16>, Scalar<HalfIndex, Float16>>(layout, tile);
#else
  rotate_layout<Pairs<Float16>, Halves<Float16>>(layout, tile);
#endif
}

void rotate_any(rf_dtype dtype, rf_rope_layout layout, const RopeTile& tile) {
  switch (dtype) {
    case RF_F32:
      return rotate_layout<Pairs<float>, Halves<float>>(layout, tile);
    case RF_F64:
      return rotate_layout<Pairs<double>, Halves<double>>(layout, tile);
    case RF_BF16:
      return rotate_bf16(layout, tile);
    case RF_F16:
      return rotate_f16(layout, tile);
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
