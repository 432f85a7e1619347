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

TEST(Curves, StepsToTheEndOfAnotherCurve) {
  const Curve slow = line(8, 5);  // the last five: 5.2
  EXPECT_DOUBLE_EQ(steps_to_end_of(line(5.1, 5.1), slow), 50);
  EXPECT_DOUBLE_EQ(steps_to_end_of(slow, slow), 300);
  EXPECT_DOUBLE_EQ(steps_to_end_of(line(9, 6), slow), 301);  // never
}

}  // namespace
}  // namespace rf::reproduce
