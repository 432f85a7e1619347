// The generator against the published known answers, and permutations that are permutations.
#include "rf/data/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tolerances.h"

namespace rf::data {
namespace {

// Known-answer vectors of Random123 (philox4x32 10).
TEST(Random, PhiloxKnownAnswers) {
  EXPECT_EQ(philox4x32(0, {0, 0, 0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32(~uint64_t{0}, {ones, ones, ones, ones}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, EveryCoordinateCounts) {
  const PhiloxBlock base = draw(1, Stream::kMask, 2, 3, 4);
  EXPECT_NE(base, draw(2, Stream::kMask, 2, 3, 4));
  EXPECT_NE(base, draw(1, Stream::kSplit, 2, 3, 4));
  EXPECT_NE(base, draw(1, Stream::kMask, 3, 3, 4));
  EXPECT_NE(base, draw(1, Stream::kMask, 2, 4, 4));
  EXPECT_NE(base, draw(1, Stream::kMask, 2, 3, 5));
  EXPECT_NE(base, draw(1, Stream::kMask, 2, 3, 4 + (int64_t{1} << 32)));
}

TEST(Random, ScaleCoversTheRange) {
  EXPECT_EQ(scale_to(0, 7), 0);
  EXPECT_EQ(scale_to(0xffffffff, 7), 6);
  EXPECT_EQ(threshold(1.0), uint64_t{1} << 32);
  EXPECT_EQ(threshold(0.25), uint64_t{1} << 30);
}

TEST(Random, PermutationIsABijection) {
  for (const int64_t size : {1, 2, 3, 5, 16, 17, 1000, 65537}) {
    const Permutation permutation(size, 7, Stream::kChunkOrder, 3);
    std::vector<int> seen(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      const int64_t to = permutation(i);
      ASSERT_TRUE(to >= 0 && to < size) << size;
      ++seen[to];
    }
    EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(size), 1)) << size;
  }
}

TEST(Random, PermutationsAreUniform) {
  const int64_t size = 10, epochs = 10000;
  std::vector<double> hits(size * size);
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    const Permutation permutation(size, 1, Stream::kChunkOrder, epoch);
    for (int64_t i = 0; i < size; ++i) hits[i * size + permutation(i)] += 1;
  }
  const double p = 1.0 / size, sigma = std::sqrt(epochs * p * (1 - p));
  for (const double count : hits) EXPECT_NEAR(count, epochs * p, tests::kSigmas * sigma);
}

}  // namespace
}  // namespace rf::data
