// Learning rates (R-TRN-05) against golden numbers and values worked out by hand.
#include <gtest/gtest.h>

#include "rf/train/run_config.h"
#include "tolerances.h"

namespace rf::train {
namespace {

void expect_rate(const ScheduleConfig& schedule, int64_t step, int64_t total, double rate) {
  EXPECT_NEAR(learning_rate(schedule, step, total), rate, rf::tests::kScheduleRelative * std::max(rate, 1e-3))
      << "step " << step;
}

TEST(Schedule, InverseSqrtIsFairseqs) {
  ScheduleConfig schedule{Schedule::kInverseSqrt, 5e-4, 4000, 1e-7, 0, {}};
  expect_rate(schedule, 1, 200000, 2.24975e-7);
  expect_rate(schedule, 2000, 200000, 2.5005e-4);
  expect_rate(schedule, 4000, 200000, 5e-4);
  expect_rate(schedule, 16000, 200000, 2.5e-4);
  expect_rate(schedule, 100000, 200000, 1e-4);
}

TEST(Schedule, InverseSqrtWithoutWarmup) {
  ScheduleConfig schedule{Schedule::kInverseSqrt, 8e-4, 0, 0, 0, {}};
  expect_rate(schedule, 1, 100, 8e-4);
  expect_rate(schedule, 64, 100, 1e-4);
}

TEST(Schedule, LinearEndsAtTheFinalRate) {
  ScheduleConfig schedule{Schedule::kLinear, 1e-3, 10, 0, 1e-4, {}};
  expect_rate(schedule, 1, 110, 1e-4);
  expect_rate(schedule, 10, 110, 1e-3);
  expect_rate(schedule, 60, 110, 5.5e-4);
  expect_rate(schedule, 110, 110, 1e-4);
}

TEST(Schedule, CosineIsHalfwayInTheMiddle) {
  ScheduleConfig schedule{Schedule::kCosine, 1e-3, 0, 0, 2e-4, {}};
  expect_rate(schedule, 25, 100, 2e-4 + 8e-4 * 0.5 * (1 + 0.70710678118654752));
  expect_rate(schedule, 50, 100, 6e-4);
  expect_rate(schedule, 100, 100, 2e-4);
}

TEST(Schedule, ConstantAfterWarmup) {
  ScheduleConfig schedule{Schedule::kConstant, 3e-5, 4, 0, 0, {}};
  expect_rate(schedule, 1, 1000, 0.75e-5);
  expect_rate(schedule, 4, 1000, 3e-5);
  expect_rate(schedule, 1000, 1000, 3e-5);
}

TEST(Schedule, PiecewiseStartsAtZeroAndStaysAtItsLastPoint) {
  ScheduleConfig schedule{Schedule::kPiecewise, 1e-3, 0, 0, 0, {{1000, 1.0}, {2000, 0.1}}};
  expect_rate(schedule, 250, 5000, 2.5e-4);
  expect_rate(schedule, 1000, 5000, 1e-3);
  expect_rate(schedule, 1500, 5000, 5.5e-4);
  expect_rate(schedule, 4000, 5000, 1e-4);
  schedule.points.insert(schedule.points.begin(), {0, 0.5});
  expect_rate(schedule, 500, 5000, 7.5e-4);
}

TEST(Schedule, WarmupLongerThanTheRun) {
  ScheduleConfig schedule{Schedule::kLinear, 1e-3, 100, 0, 0, {}};
  expect_rate(schedule, 10, 10, 1e-4);
}

}  // namespace
}  // namespace rf::train
