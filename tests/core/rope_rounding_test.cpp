// Rounding to 16 bits: every bit pattern times a factor whose products are exact in float32, ties included, must come
// out as the nearest value, to even, on every instruction set.
#include "core/rope_case.h"
#include "rf/dropout.h"

namespace rf::tests {
namespace {

// At position 0 the rotation is a multiplication by scale. Times 1.5 or 1.25 the products are exact in float32, and
// many of them fall half way between two 16-bit numbers.
using RopeRounding = TargetTest;

TEST_P(RopeRounding, NearestEvenOverAllPatterns) {
  constexpr int64_t kPatterns = 65536;
  for (const auto& [dtype, scale] : {std::pair{RF_BF16, 1.5}, {RF_BF16, 1.25}, {RF_F16, 1.5}, {RF_F16, 1.25}}) {
    const Frequencies frequencies(64);
    const Rope rope = make_rope(frequencies, scale);
    Elements x(dtype, kPatterns), y(dtype, kPatterns), want(dtype, kPatterns);
    for (int64_t i = 0; i < kPatterns; ++i) reinterpret_cast<uint16_t*>(x.bytes.data())[i] = static_cast<uint16_t>(i);
    // c x - s x_b with s = 0 is x c only where x_b is finite.
    for (int64_t i = 0; i < kPatterns; ++i) {
      if (!std::isfinite(x.at(i))) x.set(i, 1);
      want.set(i, scale * x.at(i));
    }
    for (const rf_rope_layout layout : {RF_ROPE_PAIRS, RF_ROPE_HALVES}) {
      rf_rope_args args = contiguous_args(x, y, 1, 1, kPatterns / 64, 64, layout);
      ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK) << rf_last_error();
      for (int64_t i = 0; i < kPatterns; ++i) {
        // bfloat16 below 2^-126 may be taken for zero (rf/rope.h).
        if (dtype == RF_BF16 && std::abs(x.at(i)) < 0x1p-126 && y.at(i) == 0) continue;
        ASSERT_EQ(y.at(i), want.at(i)) << "pattern " << i << " dtype " << dtype;
      }
    }
  }
}

TEST_P(RopeRounding, NanAndInfinityStay) {
  for (const rf_dtype dtype : {RF_BF16, RF_F16, RF_F32, RF_F64}) {
    Elements x(dtype, 256), y(dtype, 256);
    for (int64_t i = 0; i < 256; ++i) x.set(i, i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY);
    // The smallest payload of a NaN, which a truncation would make an infinity.
    if (dtype == RF_BF16) reinterpret_cast<uint16_t*>(x.bytes.data())[0] = 0x7F81;
    ASSERT_EQ(rf_dropout(dtype, x.bytes.data(), y.bytes.data(), 256, 0, 1, 2), RF_OK);
    for (int64_t i = 0; i < 256; ++i) {
      EXPECT_TRUE(i % 3 == 0 ? std::isnan(y.at(i)) : y.at(i) == x.at(i)) << i << " dtype " << dtype;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, RopeRounding, testing::ValuesIn(instruction_sets()), name_of_target);

}  // namespace
}  // namespace rf::tests
