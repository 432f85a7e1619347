// The laws of the rotation (R-ROPE-04, R-ROPE-06..08), by the kernels and by the float64 loops.
#include "core/rope_case.h"
#include "rope/angle.h"

namespace rf::tests {
namespace {

class RopeValues : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(rf_set_target(GetParam()), RF_OK); }
  void TearDown() override { rf_set_target(""); }
};

TEST_P(RopeValues, InverseAndTransposeUndoTheRotation) {
  constexpr int64_t kTokens = 5, kHeads = 3, kDim = 70;
  const Frequencies frequencies(64);
  for (const double scale : {1.0, 1.25, -0.3}) {
    const Rope rope = make_rope(frequencies, scale);
    for (const rf_rope_layout layout : {RF_ROPE_PAIRS, RF_ROPE_HALVES}) {
      Elements x(RF_F64, kTokens * kHeads * kDim), y = x, z = x;
      x.fill();
      rf_rope_args args = contiguous_args(x, y, 1, kTokens, kHeads, kDim, layout);
      args.position_offset = 1000000;
      ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK);
      for (const rf_rope_direction direction : {RF_ROPE_INVERSE, RF_ROPE_TRANSPOSE}) {
        rf_rope_args back = contiguous_args(y, z, 1, kTokens, kHeads, kDim, layout);
        back.position_offset = args.position_offset;
        back.direction = direction;
        ASSERT_EQ(rf_rope_apply(rope.get(), &back), RF_OK);
        for (int64_t i = 0; i < x.count(); ++i) {
          // R^T R = scale^2 I on the rotated part; the rest is passed on.
          const double gain = direction == RF_ROPE_TRANSPOSE && i % kDim < 64 ? scale * scale : 1;
          ASSERT_NEAR(z.at(i), gain * x.at(i), kRoundTripF64) << "scale " << scale << " element " << i;
        }
      }
    }
  }
}

TEST_P(RopeValues, KeepsTheNorm) {
  const Frequencies frequencies(128);
  const Rope rope = make_rope(frequencies);
  for (const rf_dtype dtype : {RF_F32, RF_F64}) {
    Elements x(dtype, 128), y = x;
    x.fill();
    for (const int64_t position : {0, 1, 511, 131071, 1000000}) {
      rf_rope_args args = contiguous_args(x, y, 1, 1, 1, 128, RF_ROPE_PAIRS);
      args.position_offset = position;
      ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK);
      double before = 0, after = 0;
      for (int64_t i = 0; i < 128; ++i) before += x.at(i) * x.at(i), after += y.at(i) * y.at(i);
      EXPECT_NEAR(std::sqrt(after / before), 1, dtype == RF_F32 ? kNormF32 : kNormF64) << position;
    }
  }
}

TEST(RopeAngle, IsNotANumberBeyondItsLimit) {
  EXPECT_TRUE(std::isfinite(core::cos_sin(1, {0x1p60, 0}).cos));
  for (const double frequency : {0x1.8p60, 1e308}) {
    EXPECT_TRUE(std::isnan(core::cos_sin(2, {frequency, 0}).cos));
    EXPECT_TRUE(std::isnan(core::cos_sin(2, {frequency, 0}).sin));
  }
  // A page holds such rows; the one that is asked for is right.
  const double frequency = 1e308;
  rf_rope* made = nullptr;
  ASSERT_EQ(rf_rope_create(&frequency, nullptr, 1, 1, 0, &made), RF_OK);
  const Rope rope(made);
  Elements x(RF_F32, 2), y = x;
  x.fill();
  const rf_rope_args args = contiguous_args(x, y, 1, 1, 1, 2, RF_ROPE_PAIRS);
  ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK) << rf_last_error();
  EXPECT_EQ(x.bytes, y.bytes);
}

INSTANTIATE_TEST_SUITE_P(Paths, RopeValues, testing::Values("", "ref"),
                         [](const auto& info) { return *info.param == '\0' ? "kernels" : "reference"; });

}  // namespace
}  // namespace rf::tests
