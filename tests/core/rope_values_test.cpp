// Golden numbers and the laws of the rotation (R-ROPE-04, R-ROPE-06..08), by the kernels and by the float64 loops.
#include "core/rope_case.h"
#include "rope/angle.h"

namespace rf::tests {
namespace {

struct Golden {
  double position;
  rf_rope_layout layout;
  double y[8];
};

constexpr Golden kGolden[] = {
    {1,
     RF_ROPE_PAIRS,
     {-1.142639663748, 1.922075596544, 2.585678829247, 4.279516911053, 4.939751002078, 6.049699169171, 6.991996501334,
      8.006995998834}},
    {3,
     RF_ROPE_PAIRS,
     {-1.27223251272, -1.838864985141, 1.683928640731, 4.707906576486, 4.81777716753, 6.147277703506, 6.975968536024,
      8.020963968527}},
    {1000,
     RF_ROPE_PAIRS,
     {-1.091380004773, 1.951637693113, 4.612419181302, 1.930178565821, -0.931230980046, -7.754534728906,
      -2.949651737386, 10.2127153406}},
    {100000,
     RF_ROPE_PAIRS,
     {-1.070858403382, -1.962972816904, -1.634008549224, -4.725464639701, -2.149381861739, 7.508672160404,
      10.08715723489, 3.353991490533}},
    {3,
     RF_ROPE_HALVES,
     {-1.6955925369, 0.1375517382832, 2.788681599829, 3.975982036013, -4.808842474942, 6.323059348076, 7.08683673685,
      8.011963982027}},
};

class RopeValues : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(rf_set_target(GetParam()), RF_OK); }
  void TearDown() override { rf_set_target(""); }
};

TEST_P(RopeValues, GoldenNumbers) {
  const Frequencies frequencies(8);
  const Rope rope = make_rope(frequencies);
  for (const Golden& golden : kGolden) {
    Elements x(RF_F64, 8), y(RF_F64, 8);
    for (int64_t i = 0; i < 8; ++i) x.set(i, static_cast<double>(i + 1));
    rf_rope_args args = contiguous_args(x, y, 1, 1, 1, 8, golden.layout);
    args.positions_f64 = &golden.position;
    ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK) << rf_last_error();
    for (int64_t i = 0; i < 8; ++i) EXPECT_NEAR(y.at(i), golden.y[i], kGoldenDecimals) << golden.position << " " << i;
  }
}

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

TEST_P(RopeValues, ScoresDependOnDistanceOnly) {
  // Spec A.2: q = (1,2,3,4), k = (5,-6,7,8).
  const double q[] = {1, 2, 3, 4}, k[] = {5, -6, 7, 8};
  const struct {
    int64_t m, n;
    double score;
  } cases[] = {{0, 0, 46},
               {5, 3, 41.2736747131744},
               {105, 103, 41.2736747131744},
               {3, 5, 70.5311817051429},
               {7, 0, 36.8013302641699},
               {0, 7, 58.3844442018714}};
  const Frequencies frequencies(4);
  const Rope rope = make_rope(frequencies);
  for (const auto& c : cases) {
    Elements x(RF_F64, 8), y(RF_F64, 8);
    for (int64_t i = 0; i < 4; ++i) x.set(i, q[i]), x.set(4 + i, k[i]);
    const int64_t positions[] = {c.m, c.n};
    rf_rope_args args = contiguous_args(x, y, 1, 2, 1, 4, RF_ROPE_PAIRS);
    args.positions_i64 = positions;
    ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK);
    double score = 0;
    for (int64_t i = 0; i < 4; ++i) score += y.at(i) * y.at(4 + i);
    EXPECT_NEAR(score, c.score, kGoldenScore);
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
