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

// Pearson's statistic of pairs that fall into a grid of kCells times kCells; for a uniform permutation its mean is
// (kCells - 1)^2 and its variance twice that.
constexpr int64_t kCells = 32;
double grid_statistic(const std::vector<int64_t>& x, const std::vector<int64_t>& y, int64_t size) {
  std::vector<double> hits(kCells * kCells);
  for (size_t i = 0; i < x.size(); ++i) hits[size_t(x[i] * kCells / size * kCells + y[i] * kCells / size)] += 1;
  const double expected = double(x.size()) / double(kCells * kCells);
  double statistic = 0;
  for (const double count : hits) statistic += (count - expected) * (count - expected) / expected;
  return statistic;
}

// A shuffle of all chunks: no pattern between a place and what is there, between neighbours, or between epochs.
TEST(Random, PermutationsOfManyHaveNoPattern) {
  const double mean = (kCells - 1) * (kCells - 1), sigma = std::sqrt(2 * mean);
  for (const int64_t size : {65536, 65537, 100003}) {
    std::vector<int64_t> place, here, next, later;
    const Permutation order(size, 1, Stream::kChunkOrder, 0), other(size, 1, Stream::kChunkOrder, 1);
    double distance = 0, fixed = 0;
    for (int64_t i = 0; i < size; ++i) {
      place.push_back(i);
      here.push_back(order(i));
      next.push_back(order((i + 1) % size));
      later.push_back(other(i));
      distance += std::abs(double(next.back() - here.back())) / double(size);
      fixed += here.back() == i ? 1 : 0;
    }
    for (const auto* found : {&place, &next, &later}) {
      EXPECT_NEAR(grid_statistic(*found, here, size), mean, tests::kSigmas * sigma) << size;
    }
    // |x - y| of independent uniform numbers: mean 1/3, variance 1/18; neighbours share one, hence the factor.
    EXPECT_NEAR(distance / double(size), 1.0 / 3, tests::kSigmas * std::sqrt(2.0 / 18 / double(size))) << size;
    EXPECT_LT(fixed, 12) << size;  // a Poisson variable of mean 1
  }
}

}  // namespace
}  // namespace rf::data
