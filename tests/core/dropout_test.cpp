// Dropout: the generator against the vectors published with it, the kernels of every instruction set against plain
// loops, and the promises of the header (in place, threads, element types, share of dropped elements).
#include "rf/dropout.h"

#include "common/reference.h"
#include "core/rope_case.h"
#include "rows/philox.h"

namespace rf::tests {
namespace {

// Known answers of philox4x32-10 from the Random123 distribution (kat_vectors).
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(core::philox4x32_10({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(core::philox4x32_10({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(core::philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

using Dropout = TargetTest;

TEST_P(Dropout, EqualsPlainLoops) {
  constexpr uint64_t kSeed = 0x123456789abcdef0, kStream = 0xfedcba9876543210;
  for (const rf_dtype dtype : {RF_F32, RF_F64, RF_BF16, RF_F16}) {
    for (const int64_t count : {1, 8, 9, 31, 2047, 2048, 2049, 5000}) {
      for (const double p : {0.0, 0.1, 0.5, 0.99}) {
        Elements x(dtype, count), y(dtype, count), want(dtype, count);
        x.fill();
        ASSERT_EQ(rf_dropout(dtype, x.bytes.data(), y.bytes.data(), count, p, kSeed, kStream), RF_OK);
        const auto threshold = static_cast<uint32_t>(std::lround(65536 * p));
        ref::dropout(dtype, x.bytes.data(), want.bytes.data(), count, threshold, kSeed, kStream);
        for (int64_t i = 0; i < count; ++i) {
          // The scale is rounded to float before the product, which may tip a 16-bit rounding.
          ASSERT_NEAR(y.at(i), want.at(i), eps_of(dtype) * std::abs(want.at(i))) << "dtype " << dtype << " " << i;
          ASSERT_EQ(y.at(i) == 0, want.at(i) == 0) << "dtype " << dtype << " p " << p << " element " << i;
        }
      }
    }
  }
}

TEST_P(Dropout, InPlaceAndThreadsGiveTheSameBits) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16}) {
    Elements x(dtype, 200001), one = x;
    x.fill();
    omp_set_num_threads(1);
    ASSERT_EQ(rf_dropout(dtype, x.bytes.data(), one.bytes.data(), x.count(), 0.1, 3, 4), RF_OK);
    omp_set_num_threads(2);
    ASSERT_EQ(rf_dropout(dtype, x.bytes.data(), x.bytes.data(), x.count(), 0.1, 3, 4), RF_OK);
    EXPECT_EQ(x.bytes, one.bytes);
  }
}

TEST_P(Dropout, DropsTheShareAskedForAndStreamsDiffer) {
  constexpr int64_t kCount = 1 << 20;
  constexpr double kP = 0.1;
  Elements x(RF_F32, kCount), y = x, z = x;
  for (int64_t i = 0; i < kCount; ++i) x.set(i, 1);
  ASSERT_EQ(rf_dropout(RF_F32, x.bytes.data(), y.bytes.data(), kCount, kP, 1, 1), RF_OK);
  ASSERT_EQ(rf_dropout(RF_F32, x.bytes.data(), z.bytes.data(), kCount, kP, 1, 2), RF_OK);
  double dropped = 0, both = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    dropped += y.at(i) == 0;
    both += y.at(i) == 0 && z.at(i) == 0;
  }
  EXPECT_NEAR(dropped / kCount, kP, kBinomialSigmas * std::sqrt(kP * (1 - kP) / kCount));
  EXPECT_NEAR(both / kCount, kP * kP, kBinomialSigmas * std::sqrt(kP * kP * (1 - kP * kP) / kCount));
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, Dropout, testing::ValuesIn(instruction_sets_and_ref()), name_of_target);

}  // namespace
}  // namespace rf::tests
