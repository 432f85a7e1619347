// Spread, Student's t, Holm's correction, slopes and ranks. Expected numbers are scipy 1.17's: rank correlations with
// ties spearmanr's, those of t stats.t's and ttest_1samp's.
#include "statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tolerances.h"

namespace rf::reproduce {
namespace {

TEST(Statistics, Spread) {
  const Spread of_three = spread({3, 1, 2});
  EXPECT_DOUBLE_EQ(of_three.mean, 2);
  EXPECT_DOUBLE_EQ(of_three.low, 1);
  EXPECT_DOUBLE_EQ(of_three.high, 3);
  EXPECT_EQ(text(of_three), "2 (1 to 3)");
  EXPECT_EQ(text(spread({0.25})), "0.25");
}

TEST(Statistics, StudentT) {
  EXPECT_NEAR(student_t_probability(-3, 2), 0.04773298313335456, tests::kStatistics);
  EXPECT_NEAR(student_t_probability(1.5, 7), 0.911350756505015, tests::kStatistics);
  EXPECT_NEAR(student_t_probability(-40, 2), 0.0003122073360923703, tests::kStatistics);
  EXPECT_NEAR(student_t_probability(6, 30), 0.9999993028615617, tests::kStatistics);
  EXPECT_DOUBLE_EQ(student_t_probability(0, 5), 0.5);
  EXPECT_NEAR(student_t_quantile(0.975, 2), 4.302652729749462, 10 * tests::kStatistics);
  EXPECT_NEAR(student_t_quantile(0.995, 9), 3.249835541592126, 10 * tests::kStatistics);
  EXPECT_NEAR(student_t_quantile(0.025, 4), -2.7764451051977943, 10 * tests::kStatistics);
  EXPECT_NEAR(student_t_quantile(0.9, 1), 3.0776835371752544, 10 * tests::kStatistics);
}

TEST(Statistics, EstimateOfASample) {
  const Estimate found = estimate({0.3, -0.1, 0.25, 0.4}, 0.95);
  EXPECT_NEAR(found.low, -0.13353768598391438, tests::kStatistics);
  EXPECT_NEAR(found.high, 0.5585376859839144, tests::kStatistics);
  EXPECT_NEAR(found.p_above(0.05), 0.11595612896759604, tests::kStatistics);
  EXPECT_NEAR(found.p_below(0.05), 0.884043871032404, tests::kStatistics);
  const Estimate alone = estimate({2}, 0.95);
  EXPECT_EQ(alone.p_above(-100), 1);
  EXPECT_TRUE(std::isinf(alone.low) && std::isinf(alone.high));
  EXPECT_EQ(estimate({2, 2, 2}, 0.95).p_above(1), 0);  // no deviation
  EXPECT_EQ(estimate({2, 2, 2}, 0.95).p_above(2), 1);
}

// The example of Holm 1979's procedure by hand: 4 x 0.01, 3 x 0.02, then never lower than the one before.
TEST(Statistics, Holm) {
  EXPECT_EQ(holm({0.02, 0.9, 0.01, 0.025}), (std::vector<double>{0.06, 0.9, 0.04, 0.06}));
  EXPECT_EQ(holm({0.6, 0.7}), (std::vector<double>{1, 1}));
  EXPECT_EQ(holm({}), std::vector<double>{});
}

TEST(Statistics, Median) {
  EXPECT_DOUBLE_EQ(median({5, 1, 3}), 3);
  EXPECT_DOUBLE_EQ(median({5, 1, 3, 4}), 3.5);
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
