// What rules compare of loss curves, on made-up ones.
#include "curves.h"

#include <gtest/gtest.h>

namespace rf::reproduce {
namespace {

Curve line(double begin, double end) {
  Curve curve;
  for (int i = 1; i <= 30; ++i) {
    curve.steps.push_back(10.0 * i);
    curve.losses.push_back(begin + (end - begin) * i / 30.0);
  }
  return curve;
}

TEST(Curves, LateMeanLeavesTheFirstThirdOut) {
  Curve curve = line(2, 2);
  for (size_t i = 0; i < 10; ++i) curve.losses[i] = 100;  // steps 10..100 of 300
  EXPECT_DOUBLE_EQ(late_mean(curve), 2);
  curve.losses[10] = 22;
  EXPECT_DOUBLE_EQ(late_mean(curve), 3);
}

TEST(Curves, StepsToTheLossThatBothReach) {
  const Curve slow = line(8, 5);  // the last five: 5.2
  EXPECT_DOUBLE_EQ(steps_ratio(line(5.1, 5.1), slow), 50.0 / 300);
  EXPECT_DOUBLE_EQ(steps_ratio(slow, line(5.1, 5.1)), 300.0 / 50);
  EXPECT_DOUBLE_EQ(steps_ratio(slow, slow), 1);
  // 9 to 6 ends at 6.2, which 8 to 5 has in the mean of steps 160 to 200.
  EXPECT_DOUBLE_EQ(steps_ratio(line(9, 6), slow), 300.0 / 200);
}

// One loss below the goal, far from the end, is no arrival.
TEST(Curves, AnEarlyLowLossIsNoArrival) {
  Curve lucky = line(8, 5);
  lucky.losses[9] = -100;
  EXPECT_DOUBLE_EQ(steps_ratio(lucky, line(8, 5)), 1);
}

}  // namespace
}  // namespace rf::reproduce
