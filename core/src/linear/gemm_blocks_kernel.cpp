// Blocks of weights (gemm_blocks.h) to floats, for a tile of the product or in the registers of a row.
//
// A lane is a column. Fields of a plane are shifted to the low bits of their lane; 16 values of 4 bits are looked up
// where an instruction does it for floats. A row keeps a sum for each column, as the products of tiles do: each adds
// x[t] w[t] with one MulAdd, in the order of t.
#include <algorithm>

#include "common/simd_targets.h"
#include "linear/gemm_blocks.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linear/gemm_blocks_kernel.cpp"
#include "hwy/foreach_target.h"
// Lists the targets, then compiles this file for each one.
#include "common/float_vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

using BitsTag = hn::RebindToUnsigned<FloatTag>;
using BitsVec = hn::Vec<BitsTag>;
using IntTag = hn::RebindToSigned<FloatTag>;

inline constexpr int64_t kBlockVectorCount = kBlockColumns / kLanes;
inline constexpr int kGroupFields = 8;  // elements of a lane that are unpacked together
// Sums of a row that are kept together; the sums and their operands fit into the registers.
inline constexpr int kSums = HWY_TARGET == HWY_AVX3 ? 4 : 2;

HWY_INLINE FloatVec load_halves(const uint8_t* halves, int64_t column) {
  return load_some(reinterpret_cast<const Float16*>(halves) + column, kLanes);
}
HWY_INLINE FloatVec load_bfloat16(const uint8_t* halves, int64_t column) {
  return load_some(reinterpret_cast<const BFloat16*>(halves) + column, kLanes);
}
HWY_INLINE BitsVec load_bytes(const uint8_t* bytes) {
  const hn::Rebind<uint8_t, FloatTag> d8;
  return hn::PromoteTo(BitsTag(), hn::LoadU(d8, bytes));
}
HWY_INLINE FloatVec to_float(BitsVec whole) { return hn::ConvertTo(FloatTag(), hn::BitCast(IntTag(), whole)); }
HWY_INLINE FloatVec load_signed(const uint8_t* bytes) {
  const hn::Rebind<int8_t, FloatTag> d8;
  return hn::ConvertTo(FloatTag(), hn::PromoteTo(IntTag(), hn::LoadU(d8, reinterpret_cast<const int8_t*>(bytes))));
}

// Of the columns of a vector: an element is code * scale + minimum.
struct Affine {
  FloatVec scale, minimum;
};

template <BlockScales kScales>
HWY_INLINE Affine load_top(const uint8_t* top, int64_t column, FloatVec) {
  const auto none = hn::Zero(FloatTag());
  if constexpr (kScales == BlockScales::kNone) return {none, none};
  if constexpr (kScales == BlockScales::kBfloat16) return {load_bfloat16(top, column), none};
  const auto scale = load_halves(top, column);
  if constexpr (kScales == BlockScales::kHalf || kScales == BlockScales::kSteps) return {scale, none};
  return {scale, load_halves(top + kBlockColumns * 2, column)};
}

// The scale and minimum of group `group` of a step. minus_zero: the value of code 0 in types without a minimum.
template <BlockScales kScales>
HWY_INLINE Affine load_group(const Affine& top, const uint8_t* step, int64_t group, int64_t column,
                             FloatVec minus_zero) {
  const uint8_t* steps = step + group * kBlockColumns + column;
  if constexpr (kScales == BlockScales::kHalfMinimum) return top;
  if constexpr (kScales == BlockScales::kStepsMinimum) {
    steps += group * kBlockColumns;
    return {hn::Mul(top.scale, to_float(load_bytes(steps))),
            hn::Neg(hn::Mul(top.minimum, to_float(load_bytes(steps + kBlockColumns))))};
  }
  if constexpr (kScales == BlockScales::kNibbles) {
    const auto both = load_bytes(steps);
    return {hn::Mul(top.scale, to_float(hn::And(both, hn::Set(BitsTag(), 15)))),
            hn::Neg(hn::Mul(top.minimum, to_float(hn::ShiftRight<4>(both))))};
  }
  FloatVec scale = top.scale;
  if constexpr (kScales == BlockScales::kSteps) scale = hn::Mul(scale, load_signed(steps));
  return {scale, hn::Mul(scale, minus_zero)};
}

// Elements kGroupFields index .. of a plane of kBits bits, from the low bits on.
template <int kBits, int kIndex>
HWY_INLINE BitsVec load_fields(const uint8_t* plane, int64_t column) {
  constexpr int kGroups = 32 / (kBits * kGroupFields);
  const auto* words = reinterpret_cast<const uint32_t*>(plane) + kIndex / kGroups * kBlockColumns + column;
  return hn::ShiftRight<kIndex % kGroups * kBits * kGroupFields>(hn::LoadU(BitsTag(), words));
}

// The values of 16 codes, as floats.
struct ValueTable {
  alignas(64) float values[16];
  explicit ValueTable(const BlockForm& form) {
    for (int i = 0; i < 16; ++i) values[i] = form.values == nullptr ? static_cast<float>(i) : form.values[i];
  }
};

// Field kField of codes of 4 bits.
template <int kField, bool kTable>
HWY_INLINE FloatVec value_of(BitsVec fields, const ValueTable& table) {
  const auto code = hn::ShiftRight<4 * kField>(fields);
#if HWY_TARGET == HWY_AVX3
  return FloatVec{_mm512_permutexvar_ps(code.raw, _mm512_load_ps(table.values))};  // ignores the bits above
#else
  const auto low = hn::And(code, hn::Set(BitsTag(), 15));
  if constexpr (!kTable) return to_float(low);
  return hn::GatherIndex(FloatTag(), table.values, hn::BitCast(IntTag(), low));
#endif
}

// kLow and kHigh: bits of the planes.
template <int kLow, int kHigh, bool kTable>
struct Codes {
  static constexpr int64_t kBytes = (kLow + kHigh) * kBlockColumns * 4;
  BitsVec low, high;

  // Elements kGroupFields index .. of a step.
  template <int kIndex>
  HWY_INLINE void load(const uint8_t* codes, int64_t column) {
    low = load_fields<kLow, kIndex>(codes, column);
    if constexpr (kHigh > 0) high = load_fields<kHigh, kIndex>(codes + kLow * kBlockColumns * 4, column);
  }
  template <int kField>
  HWY_INLINE FloatVec value(const ValueTable& table) const {
    if constexpr (kLow == 4 && kHigh == 0) {
      return value_of<kField, kTable>(low, table);
    } else {
      auto code = hn::And(hn::ShiftRight<kLow * kField>(low), hn::Set(BitsTag(), (1u << kLow) - 1));
      if constexpr (kHigh > 0) {
        constexpr int kShift = kLow - kHigh * kField;  // from the field to above the low bits
        BitsVec moved = high;
        if constexpr (kShift > 0) moved = hn::ShiftLeft<kShift>(high);
        if constexpr (kShift < 0) moved = hn::ShiftRight<-kShift>(high);
        const auto mask = hn::Set(BitsTag(), ((1u << kHigh) - 1) << kLow);
        code = hn::Or(code, hn::And(moved, mask));
      }
      return to_float(code);
    }
  }
};

// Bytes and halves are read in place.
struct ByteCodes {
  static constexpr int64_t kBytes = kStepDepth * kBlockColumns;
  const uint8_t* at;
  template <int kIndex>
  HWY_INLINE void load(const uint8_t* codes, int64_t column) {
    at = codes + kIndex * kGroupFields * kBlockColumns + column;
  }
  template <int kField>
  HWY_INLINE FloatVec value(const ValueTable&) const {
    return load_signed(at + kField * kBlockColumns);
  }
};

template <class Half>
struct HalfCodes {
  static constexpr int64_t kBytes = kStepDepth * kBlockColumns * 2;
  const Half* at;
  template <int kIndex>
  HWY_INLINE void load(const uint8_t* codes, int64_t column) {
    at = reinterpret_cast<const Half*>(codes) + kIndex * kGroupFields * kBlockColumns + column;
  }
  template <int kField>
  HWY_INLINE FloatVec value(const ValueTable&) const {
    return load_some(at + kField * kBlockColumns, kLanes);
  }
};

template <class CodesOfForm, BlockScales kScales, int kGroup, int kSpan>
struct Form {
  using CodesType = CodesOfForm;
  static constexpr BlockScales kScalesType = kScales;
  static constexpr int64_t kGroups = kStepDepth / kGroup, kSteps = kSpan / kStepDepth;
  static constexpr bool kHasMinimum = kScales == BlockScales::kHalfMinimum || kScales >= BlockScales::kStepsMinimum;
  static constexpr int64_t kTopBytes =
      kScales == BlockScales::kNone ? 0 : (kHasMinimum ? 2 : 1) * kBlockColumns * int64_t{sizeof(uint16_t)};
  static constexpr int64_t kScaleBytes =
      kScales < BlockScales::kSteps ? 0 : kGroups * (kScales == BlockScales::kStepsMinimum ? 2 : 1) * kBlockColumns;
};

// Prefetches part `part` of kParts of some bytes: to the first cache where reading them takes most of the time.
template <int64_t kBytes, int64_t kParts, bool kToFirst>
HWY_INLINE void prefetch_part(const uint8_t* from, int64_t part) {
  constexpr int64_t kLine = 64, kLines = kBytes / kLine, kAhead = 4096;
  for (int64_t i = part * kLines / kParts; i < (part + 1) * kLines / kParts; ++i)
    __builtin_prefetch(from + i * kLine + kAhead, 0, kToFirst ? 3 : 2);
}

// Calls take(t, v, elements) for the elements of a span, vectors `vector` .. + kVectors - 1 of 64 columns, by t.
template <class F, int kVectors, class Take>
HWY_INLINE void visit_span(const uint8_t* span, const ValueTable& table, FloatVec minus_zero, int64_t vector,
                           const Take& take) {
  constexpr int64_t kGroupParts = kStepDepth / F::kGroups / kGroupFields;
  const int64_t column = vector * kLanes;
  Affine top[kVectors];
  for (int v = 0; v < kVectors; ++v) top[v] = load_top<F::kScalesType>(span, column + v * kLanes, minus_zero);
  const uint8_t* step = span + F::kTopBytes;
  constexpr int64_t kParts = kStepDepth / kGroupFields, kStepBytes = F::kScaleBytes + F::CodesType::kBytes;
  constexpr bool kToFirst = F::kScalesType == BlockScales::kNone;
  if (vector == 0) prefetch_part<F::kTopBytes, 1, kToFirst>(span, 0);
  for (int64_t s = 0; s < F::kSteps; ++s, step += kStepBytes) {
    Affine affine[kVectors];
    with_each<kParts>([&](auto part) HWY_ATTR {
      if (vector == 0) prefetch_part<kStepBytes, kParts, kToFirst>(step, part());
      typename F::CodesType codes[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        if constexpr (part() % kGroupParts == 0) {
          affine[v] = load_group<F::kScalesType>(top[v], step, part() / kGroupParts, column + v * kLanes, minus_zero);
        }
        codes[v].template load<part()>(step + F::kScaleBytes, column + v * kLanes);
      }
      with_each<kGroupFields>([&](auto field) HWY_ATTR {
        for (int v = 0; v < kVectors; ++v) {
          auto element = codes[v].template value<field()>(table);
          if constexpr (F::kScalesType != BlockScales::kNone)
            element = hn::MulAdd(element, affine[v].scale, affine[v].minimum);
          take(s * kStepDepth + part() * kGroupFields + field(), v, element);
        }
      });
    });
  }
}

HWY_INLINE FloatVec minus_zero_of(const BlockForm& form) { return hn::Set(FloatTag(), static_cast<float>(-form.zero)); }

// Spans first .. first + count - 1.
template <class F>
void unpack_spans(const BlockWeight& weight, int64_t block, int64_t first, int64_t count, float* to) {
  const ValueTable table(*weight.form);
  const auto minus_zero = minus_zero_of(*weight.form);
  for (int64_t i = 0; i < count; ++i, to += F::kSteps * kStepDepth * kBlockColumns) {
    for (int64_t vector = 0; vector < kBlockVectorCount; vector += kSums) {
      visit_span<F, kSums>(weight.span(block, first + i), table, minus_zero, vector,
                           [&](int64_t t, int v, FloatVec element) HWY_ATTR {
                             hn::StoreU(element, FloatTag(), to + t * kBlockColumns + (vector + v) * kLanes);
                           });
    }
  }
}

template <class F>
void multiply_row_by(const BlockWeight& weight, int64_t block, const float* x, float* sums) {
  const FloatTag d;
  const ValueTable table(*weight.form);
  const auto minus_zero = minus_zero_of(*weight.form);
  std::fill_n(sums, kBlockColumns, 0.0F);
  for (int64_t i = 0; i < weight.spans(); ++i, x += F::kSteps * kStepDepth) {
    const uint8_t* span = weight.span(block, i);
    for (int64_t vector = 0; vector < kBlockVectorCount; vector += kSums) {
      float* const of_vectors = sums + vector * kLanes;
      FloatVec sum[kSums];
      for (int v = 0; v < kSums; ++v) sum[v] = hn::LoadU(d, of_vectors + v * kLanes);
      visit_span<F, kSums>(span, table, minus_zero, vector, [&](int64_t t, int v, FloatVec element) HWY_ATTR {
        sum[v] = hn::MulAdd(hn::Set(d, x[t]), element, sum[v]);
      });
      for (int v = 0; v < kSums; ++v) hn::StoreU(sum[v], d, of_vectors + v * kLanes);
    }
  }
}

// Calls action with the Form of a type.
template <class Action>
void with_form(rf_block_type type, const Action& action) {
  using S = BlockScales;
  using Nibbles = Codes<4, 0, false>;
  using Values = Codes<4, 0, true>;
  switch (type) {
    case RF_BLOCK_F16: return action(Form<HalfCodes<Float16>, S::kNone, 32, 32>());
    case RF_BLOCK_BF16: return action(Form<HalfCodes<BFloat16>, S::kNone, 32, 32>());
    case RF_BLOCK_Q4_0: return action(Form<Nibbles, S::kHalf, 32, 32>());
    case RF_BLOCK_Q4_1: return action(Form<Nibbles, S::kHalfMinimum, 32, 32>());
    case RF_BLOCK_Q5_0: return action(Form<Codes<4, 1, false>, S::kHalf, 32, 32>());
    case RF_BLOCK_Q5_1: return action(Form<Codes<4, 1, false>, S::kHalfMinimum, 32, 32>());
    case RF_BLOCK_Q8_0: return action(Form<ByteCodes, S::kHalf, 32, 32>());
    case RF_BLOCK_Q2_K: return action(Form<Codes<2, 0, false>, S::kNibbles, 16, 256>());
    case RF_BLOCK_Q3_K: return action(Form<Codes<2, 1, false>, S::kSteps, 16, 256>());
    case RF_BLOCK_Q4_K: return action(Form<Nibbles, S::kStepsMinimum, 32, 256>());
    case RF_BLOCK_Q5_K: return action(Form<Codes<4, 1, false>, S::kStepsMinimum, 32, 256>());
    case RF_BLOCK_Q6_K: return action(Form<Codes<4, 2, false>, S::kSteps, 16, 256>());
    case RF_BLOCK_IQ4_NL: return action(Form<Values, S::kHalf, 32, 32>());
    case RF_BLOCK_IQ4_XS: return action(Form<Values, S::kSteps, 32, 256>());
    case RF_BLOCK_MXFP4: return action(Form<Values, S::kBfloat16, 32, 32>());
  }
}

void unpack_block(const BlockWeight& weight, int64_t block, int64_t depth, int64_t count, float* to) {
  const int64_t span = weight.form->span_depth();
  with_form(weight.form->type, [&](auto form) {
    unpack_spans<decltype(form)>(weight, block, depth / span, (count + span - 1) / span, to);
  });
}

void multiply_row(const BlockWeight& weight, int64_t block, const float* x, float* sums) {
  with_form(weight.form->type, [&](auto form) { multiply_row_by<decltype(form)>(weight, block, x, sums); });
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rf::core {

HWY_EXPORT(unpack_block);
HWY_EXPORT(multiply_row);

void unpack_block(const BlockWeight& weight, int64_t block, int64_t depth, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(unpack_block)(weight, block, depth, count, to);
}

void multiply_row(const BlockWeight& weight, int64_t block, const float* x, float* sums) {
  HWY_DYNAMIC_DISPATCH(multiply_row)(weight, block, x, sums);
}

}  // namespace rf::core
#endif
