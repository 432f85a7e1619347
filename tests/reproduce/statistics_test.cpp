// Spread, slopes and ranks. Rank correlations with ties are scipy 1.17's (scipy.stats.spearmanr).
#include "statistics.h"

#include <gtest/gtest.h>

#include "tolerances.h"

namespace rf::reproduce {
namespace {

TEST(Statistics, Spread) {
  const Spread of_three = spread({3, 1, 2});
  EXPECT_DOUBLE_EQ(of_three.mean, 2);
  EXPECT_DOUBLE_EQ(of_three.low, 1);
  EXPECT_DOUBLE_EQ(of_three.range(), 2);
  EXPECT_EQ(text(of_three), "2 (1 to 3)");
  EXPECT_EQ(text(spread({0.25})), "0.25");
}

TEST(Statistics, Median) {
  EXPECT_DOUBLE_EQ(median({5, 1, 3}), 3);
  EXPECT_DOUBLE_EQ(median({5, 1, 3, 4}), 4);
}

TEST(Statistics, Slope) {
  EXPECT_DOUBLE_EQ(slope({0, 1, 2}, {1, 3, 5}), 2);
  EXPECT_DOUBLE_EQ(slope({0, 1, 2, 3}, {0, 1, 1, 0}), 0);
  EXPECT_NEAR(power({1, 2, 4, 8}, {3, 12, 48, 192}), 2, tests::kStatistics);
}

TEST(Statistics, Spearman) {
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3}, {10, 20, 30}), 1);
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3}, {9, 4, 1}), -1);
  EXPECT_NEAR(spearman({1, 2, 2, 4, 5}, {3, 1, 4, 1, 5}), 0.2894736842105264, tests::kStatistics);
}

TEST(Statistics, WindowsLeaveTheRestOut) {
  EXPECT_EQ(window_means({1, 3, 5, 7, 100}, 2), (std::vector<double>{2, 6}));
}

}  // namespace
}  // namespace rf::reproduce
