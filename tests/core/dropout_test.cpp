// Dropout: the kernels of every instruction set against plain loops, and the promises of the header (in place, threads,
// element types). tests/ops/test_dropout.py compares the generator with the vectors published with it.
#include "rf/dropout.h"

#include "common/reference.h"
#include "core/rope_case.h"

namespace rf::tests {
namespace {

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

INSTANTIATE_TEST_SUITE_P(InstructionSets, Dropout, testing::ValuesIn(instruction_sets_and_ref()), name_of_target);

}  // namespace
}  // namespace rf::tests
