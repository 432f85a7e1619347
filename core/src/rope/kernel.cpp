// Rotary kernel (RoFormer Eq. 34, spec R-ROPE-06), for tiles of a few tokens by all heads:
//
//   y_a = c x_a - s x_b        (a, b) = (2i, 2i+1) in pairs, (i, i + R/2) in halves
//   y_b = s x_a + c x_b
//
// Every table row serves all heads of its token: its vectors are brought into the order of the data once, and stay in
// registers over the heads.
//
//   pairs,  f32 f64 f16   x      x0    x1    x2    x3  ...       y = C x + S swap(x)
//                         C      c0    c0    c1    c1
//                         S     -s0    s0   -s1    s1
//   halves, f32 f64 f16   a and b are two runs of the head, c and s the unchanged row
//   pairs,  bf16          a 32-bit lane is one pair, its halves a and b (common/element-inl.h)
//   halves, bf16          a 32-bit lane holds two neighbours of a, or of b; c and s are split into even and odd i
//
// Bits depend on the instruction set, not on the number of threads or the place of the token in a tile. The kernel does
// not compute angles, choose positions or start threads.
#include "rope/kernel.h"

#include <algorithm>
#include <type_traits>

#include "common/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rope/kernel.cpp"
#include "hwy/foreach_target.h"
// Lists the targets, then compiles this file for each one.
#include "common/element-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

template <class A>
struct Row {
  const A* cos;
  const A* sin;
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

// Pairs i .. n - 1, one at a time: the rest of a row after its last whole vector. Vectors of one lane make the fused
// operations explicit; in a plain loop the compiler's choice differs between heads (gcc 12 fuses in spite of
// -ffp-contract=off where it vectorises).
template <class Index, class T>
HWY_INLINE void rotate_rest(const Row<Arithmetic<T>>& row, const Heads<T>& heads, int64_t n, int64_t i) {
  const hn::CappedTag<Arithmetic<T>, 1> d;
  for (; i < n; ++i) {
    const auto c = hn::Set(d, row.cos[i]);
    const auto s = hn::Set(d, row.sign * row.sin[i]);
    const int64_t first = Index::first(i, n), second = Index::second(i, n);
    for (int64_t h = 0; h < heads.count; ++h) {
      const T* x = heads.x + h * heads.x_stride;
      T* y = heads.y + h * heads.y_stride;
      const auto a = hn::Set(d, to_arithmetic(x[first]));
      const auto b = hn::Set(d, to_arithmetic(x[second]));
      y[first] = from_arithmetic<T>(hn::GetLane(hn::NegMulAdd(s, b, hn::Mul(c, a))));
      y[second] = from_arithmetic<T>(hn::GetLane(hn::MulAdd(s, a, hn::Mul(c, b))));
    }
  }
}

template <class LayoutIndex, class T>
struct Scalar {
  using Index = LayoutIndex;
  using Element = T;
};

template <class Kernel, class T>
inline constexpr bool is_vector = !std::is_same_v<Kernel, Scalar<typename Kernel::Index, T>>;

#if HWY_TARGET != HWY_SCALAR

// v0 v0 v1 v1 ...: half a vector from memory, every element twice.
template <class D, class A>
HWY_INLINE hn::Vec<D> load_twice(D d, const A* from) {
  const hn::Half<D> half;
  const hn::RebindToUnsigned<D> du;
  const auto indices = hn::IndicesFromVec(d, hn::ShiftRight<1>(hn::Iota(du, 0)));
  return hn::TableLookupLanes(hn::ZeroExtendVector(d, hn::LoadU(half, from)), indices);
}

// A kernel below defines how many pairs one vector step rotates, the coefficients of the step (two or four vectors,
// kept in registers over the heads) and its operation on a head.

template <class T>
struct VectorPairs {
  using A = Arithmetic<T>;
  using Index = PairIndex;
  using Element = T;
  template <class D>
  static HWY_INLINE int64_t step(D d) {
    return static_cast<int64_t>(hn::Lanes(d)) / 2;
  }

  template <class D>
  struct Coefficients {
    HWY_INLINE void load(D d, const Row<A>& row, int64_t i) {
      const auto sine = hn::Mul(hn::Set(d, row.sign), load_twice(d, row.sin + i));
      c = load_twice(d, row.cos + i);
      s = hn::OddEven(sine, hn::Neg(sine));
    }
    template <Stores kStores>
    HWY_INLINE void rotate(D d, const T* x, T* y, int64_t i, int64_t) const {
      const auto value = VectorElement<T>::load(d, x + 2 * i);
      VectorElement<T>::template store<kStores>(d, hn::MulAdd(s, hn::Reverse2(d, value), hn::Mul(c, value)), y + 2 * i);
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

  template <class D>
  struct Coefficients {
    HWY_INLINE void load(D d, const Row<A>& row, int64_t i) {
      c = hn::LoadU(d, row.cos + i);
      s = hn::Mul(hn::Set(d, row.sign), hn::LoadU(d, row.sin + i));
    }
    HWY_INLINE void rotate_halves(D d, const T* x, int64_t i, int64_t n, hn::Vec<D>& y_a, hn::Vec<D>& y_b) const {
      const auto a = VectorElement<T>::load(d, x + i);
      const auto b = VectorElement<T>::load(d, x + n + i);
      y_a = hn::NegMulAdd(s, b, hn::Mul(c, a));
      y_b = hn::MulAdd(s, a, hn::Mul(c, b));
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

  template <class D>
  struct Coefficients {
    HWY_INLINE void load(D d, const Row<float>& row, int64_t i) {
      c = hn::LoadU(d, row.cos + i);
      s = hn::Mul(hn::Set(d, row.sign), hn::LoadU(d, row.sin + i));
    }
    template <Stores kStores>
    HWY_INLINE void rotate(D d, const BFloat16* x, BFloat16* y, int64_t i, int64_t) const {
      const hn::RebindToUnsigned<D> du;
      const auto bits = load_bf16_pairs(du, x + 2 * i);
      const auto a = bf16_lower(d, bits);
      const auto b = bf16_upper(d, bits);
      const auto y_a = hn::NegMulAdd(s, b, hn::Mul(c, a));
      const auto y_b = hn::MulAdd(s, a, hn::Mul(c, b));
      store_bf16_pairs<kStores>(du, Rounding::pairs(d, y_a, y_b), y + 2 * i);
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

  template <class D>
  struct Coefficients {
    HWY_INLINE void load(D d, const Row<float>& row, int64_t i) {
      const auto sign = hn::Set(d, row.sign);
      hn::LoadInterleaved2(d, row.cos + i, c_even, c_odd);
      hn::LoadInterleaved2(d, row.sin + i, s_even, s_odd);
      s_even = hn::Mul(sign, s_even);
      s_odd = hn::Mul(sign, s_odd);
    }
    template <Stores kStores>
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
      store_bf16_pairs<kStores>(du, y_a, y + i);
      store_bf16_pairs<kStores>(du, y_b, y + n + i);
    }
    hn::Vec<D> c_even, c_odd, s_even, s_odd;
  };
};

// Prefetches the lines of a later token. The hardware prefetches one stream too, but not far enough for a kernel about
// as fast as the third-level cache; with a second stream, results in another place, prefetching does not help.
template <class Kernel, int kSteps, class D, class T>
HWY_INLINE void prefetch_ahead(D d, const T* x) {
  constexpr int64_t kAheadBytes = 6 * 1024, kLineBytes = 64;
  const auto* ahead = reinterpret_cast<const char*>(x) + kAheadBytes;
  const int64_t bytes = 2 * kSteps * Kernel::step(d) * static_cast<int64_t>(sizeof(T));
  for (int64_t line = 0; line < bytes; line += kLineBytes) hwy::Prefetch(ahead + line);
}

// kSteps vector steps from pair i on, for all heads.
template <class Kernel, Stores kStores, int kSteps, class D, class T>
HWY_INLINE void rotate_steps(D d, const Row<Arithmetic<T>>& row, const Heads<T>& heads, int64_t n, int64_t i) {
  const int64_t step = Kernel::step(d);
  typename Kernel::template Coefficients<D> coefficients[kSteps];
  HWY_UNROLL(4)
  for (int k = 0; k < kSteps; ++k) coefficients[k].load(d, row, i + k * step);
  const T* x = heads.x;
  T* y = heads.y;
  const bool ahead = x == y || kStores == Stores::kStreaming;
  for (int64_t h = 0; h < heads.count; ++h, x += heads.x_stride, y += heads.y_stride) {
    if (ahead) prefetch_ahead<Kernel, kSteps>(d, x + 2 * i);
    if constexpr (std::is_same_v<Kernel, VectorHalves<T>>) {
      // All of a, then all of b: the lines of a head are written in their order.
      hn::Vec<D> y_a[kSteps], y_b[kSteps];
      HWY_UNROLL(4)
      for (int k = 0; k < kSteps; ++k) coefficients[k].rotate_halves(d, x, i + k * step, n, y_a[k], y_b[k]);
      HWY_UNROLL(4)
      for (int k = 0; k < kSteps; ++k) VectorElement<T>::template store<kStores>(d, y_a[k], y + i + k * step);
      HWY_UNROLL(4)
      for (int k = 0; k < kSteps; ++k) VectorElement<T>::template store<kStores>(d, y_b[k], y + n + i + k * step);
    } else {
      HWY_UNROLL(4)
      for (int k = 0; k < kSteps; ++k) coefficients[k].template rotate<kStores>(d, x, y, i + k * step, n);
    }
  }
}

// As many steps of kSteps vectors as fit from pair i on; returns the next pair.
template <class Kernel, Stores kStores, int kSteps, class D, class T>
HWY_INLINE int64_t rotate_many(D d, const Row<Arithmetic<T>>& row, const Heads<T>& heads, int64_t n, int64_t i) {
  const int64_t pairs = kSteps * Kernel::step(d);
  for (; i + pairs <= n; i += pairs) rotate_steps<Kernel, kStores, kSteps>(d, row, heads, n, i);
  return i;
}

#endif  // HWY_TARGET != HWY_SCALAR

template <class Kernel, Stores kStores, class T>
HWY_INLINE void rotate_heads(const RopeTile& tile, const Row<Arithmetic<T>>& row, const Heads<T>& heads) {
  const int64_t n = tile.num_freqs;
  int64_t i = 0;
  if constexpr (is_vector<Kernel, T>) {
    const hn::ScalableTag<Arithmetic<T>> widest;
    const hn::Full128<Arithmetic<T>> narrow;
    i = rotate_many<Kernel, kStores, 4>(widest, row, heads, n, i);
    i = rotate_many<Kernel, kStores, 2>(widest, row, heads, n, i);
    i = rotate_many<Kernel, kStores, 1>(widest, row, heads, n, i);
    i = rotate_many<Kernel, Stores::kPlain, 1>(narrow, row, heads, n, i);
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

// Results are collected in a buffer that stays in the first-level cache, and are written from it in whole lines.
template <class Kernel, class T>
HWY_INLINE void stream_heads(const RopeTile& tile, const Row<Arithmetic<T>>& row, const Heads<T>& heads, T* stage) {
  const int64_t head_bytes = tile.head_dim * static_cast<int64_t>(sizeof(T));
  const int64_t group = std::max<int64_t>(1, kStageBytes / head_bytes);
  for (int64_t h = 0; h < heads.count; h += group) {
    const int64_t count = std::min(group, heads.count - h);
    rotate_heads<Kernel, Stores::kPlain, T>(
        tile, row, {heads.x + h * heads.x_stride, stage, count, heads.x_stride, tile.head_dim});
    stream_bytes(reinterpret_cast<const uint8_t*>(stage), reinterpret_cast<uint8_t*>(heads.y + h * heads.y_stride),
                 static_cast<size_t>(count * head_bytes));
  }
}

template <class A>
HWY_INLINE Row<A> row_of(const RopeTile& tile, int64_t t) {
  return {static_cast<const A*>(tile.cos[t]), static_cast<const A*>(tile.sin[t]),
          tile.direction == RotationDirection::kForward ? A{1} : A{-1}};
}

// Whether every row of y consists of whole, aligned vectors.
template <class Kernel, class T>
bool whole_vectors(const RopeTile& tile) {
  if constexpr (!is_vector<Kernel, T>) {
    return false;
  } else {
    const hn::ScalableTag<Arithmetic<T>> d;
    const auto strides = static_cast<uint64_t>(tile.y_stride_t | tile.y_stride_h) * sizeof(T);
    const uint64_t places = strides | reinterpret_cast<uintptr_t>(tile.y);
    return tile.num_freqs % Kernel::step(d) == 0 && tile.head_dim == 2 * tile.num_freqs &&
           places % (hn::Lanes(d) * sizeof(Arithmetic<T>)) == 0;
  }
}

// Heads of a token follow each other in memory.
template <class Kernel>
void rotate_token_major(const RopeTile& tile, bool direct) {
  using T = typename Kernel::Element;
  const T* x = static_cast<const T*>(tile.x);
  T* y = static_cast<T*>(tile.y);
  for (int64_t t = 0; t < tile.tokens; ++t, x += tile.x_stride_t, y += tile.y_stride_t) {
    const auto row = row_of<Arithmetic<T>>(tile, t);
    const Heads<T> heads{x, y, tile.heads, tile.x_stride_h, tile.y_stride_h};
    if (direct) {
      rotate_heads<Kernel, Stores::kStreaming, T>(tile, row, heads);
    } else if (tile.stores == Stores::kPlain) {
      rotate_heads<Kernel, Stores::kPlain, T>(tile, row, heads);
    } else {
      stream_heads<Kernel, T>(tile, row, heads, static_cast<T*>(tile.stage));
    }
  }
}

// Tokens of a head follow each other in memory.
template <class Kernel, Stores kStores>
void rotate_head_major(const RopeTile& tile) {
  using T = typename Kernel::Element;
  for (int64_t h = 0; h < tile.heads; ++h) {
    const T* x = static_cast<const T*>(tile.x) + h * tile.x_stride_h;
    T* y = static_cast<T*>(tile.y) + h * tile.y_stride_h;
    for (int64_t t = 0; t < tile.tokens; ++t, x += tile.x_stride_t, y += tile.y_stride_t) {
      rotate_heads<Kernel, kStores, T>(tile, row_of<Arithmetic<T>>(tile, t), {x, y, 1, 0, 0});
    }
  }
}

template <class Kernel>
void rotate(const RopeTile& tile) {
  // Results bypass the caches directly if their vectors are whole, otherwise through a buffer.
  const bool direct = tile.stores == Stores::kStreaming && whole_vectors<Kernel, typename Kernel::Element>(tile);
  if (tile.y_stride_t >= tile.y_stride_h) {
    rotate_token_major<Kernel>(tile, direct);
  } else if (direct) {
    rotate_head_major<Kernel, Stores::kStreaming>(tile);
  } else {
    rotate_head_major<Kernel, Stores::kPlain>(tile);
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
void rotate_layout(const RopeTile& tile) {
  if (tile.layout == RF_ROPE_PAIRS) {
    rotate<PairsKernel>(tile);
  } else {
    rotate<HalvesKernel>(tile);
  }
}

void rotate_bf16(const RopeTile& tile) {
#if HWY_TARGET == HWY_SCALAR
  rotate_layout<Pairs<BFloat16>, Halves<BFloat16>>(tile);
#else
#if RF_HAVE_BF16_INSTRUCTION
  if (has_bf16_instruction()) {
    return rotate_layout<Bf16Pairs<InstructionRounding>, Bf16Halves<InstructionRounding>>(tile);
  }
#endif
  rotate_layout<Bf16Pairs<IntegerRounding>, Bf16Halves<IntegerRounding>>(tile);
#endif
}

void rotate_f16(const RopeTile& tile) {
#if HWY_TARGET != HWY_SCALAR && !RF_HAVE_F16
  rotate_layout<Scalar<PairIndex, Float16>, Scalar<HalfIndex, Float16>>(tile);
#else
  rotate_layout<Pairs<Float16>, Halves<Float16>>(tile);
#endif
}

void rotate_any(const RopeTile& tile) {
  switch (tile.dtype) {
    case RF_F32: return rotate_layout<Pairs<float>, Halves<float>>(tile);
    case RF_F64: return rotate_layout<Pairs<double>, Halves<double>>(tile);
    case RF_BF16: return rotate_bf16(tile);
    case RF_F16: return rotate_f16(tile);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rf::core {

HWY_EXPORT(rotate_any);

void rotate_tile(const RopeTile& tile) { HWY_DYNAMIC_DISPATCH(rotate_any)(tile); }

int64_t rope_stage_bytes(int64_t head_bytes) { return std::max(HWY_STATIC_DISPATCH(kStageBytes), head_bytes); }

void finish_streaming() { hwy::FlushStream(); }

}  // namespace rf::core
#endif
