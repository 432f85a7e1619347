// Learning rates (R-TRN-05) against golden numbers and values worked out by hand.
#include <gtest/gtest.h>

#include "rf/train/run_config.h"
#include "tolerances.h"

namespace rf::train {
namespace {

void expect_rates(const ScheduleConfig& schedule, int64_t total, const std::vector<std::pair<int64_t, double>>& rates) {
  for (const auto& [step, rate] : rates) {
    EXPECT_NEAR(learning_rate(schedule, step, total), rate, rf::tests::kScheduleRelative * std::max(rate, 1e-3))
        << "kind " << static_cast<int>(schedule.kind) << ", step " << step;
  }
}

// Schedules: kind, peak, warm-up, initial and final rate, points.
TEST(Schedule, HasTheRatesOfItsKind) {
  const ScheduleConfig of_fairseq{Schedule::kInverseSqrt, 5e-4, 4000, 1e-7, 0, {}};
  expect_rates(of_fairseq, 200000, {{1, 2.24975e-7}, {2000, 2.5005e-4}, {4000, 5e-4}, {16000, 2.5e-4}, {100000, 1e-4}});
  expect_rates({Schedule::kInverseSqrt, 8e-4, 0, 0, 0, {}}, 100, {{1, 8e-4}, {64, 1e-4}});
  expect_rates({Schedule::kLinear, 1e-3, 10, 0, 1e-4, {}}, 110, {{1, 1e-4}, {10, 1e-3}, {60, 5.5e-4}, {110, 1e-4}});
  const double root = 2e-4 + 8e-4 * 0.5 * (1 + 0.70710678118654752);
  expect_rates({Schedule::kCosine, 1e-3, 0, 0, 2e-4, {}}, 100, {{25, root}, {50, 6e-4}, {100, 2e-4}});
  expect_rates({Schedule::kConstant, 3e-5, 4, 0, 0, {}}, 1000, {{1, 0.75e-5}, {4, 3e-5}, {1000, 3e-5}});
  ScheduleConfig piecewise{Schedule::kPiecewise, 1e-3, 0, 0, 0, {{1000, 1.0}, {2000, 0.1}}};
  expect_rates(piecewise, 5000, {{250, 2.5e-4}, {1000, 1e-3}, {1500, 5.5e-4}, {4000, 1e-4}});
  piecewise.points.insert(piecewise.points.begin(), {0, 0.5});
  expect_rates(piecewise, 5000, {{500, 7.5e-4}});
  expect_rates({Schedule::kLinear, 1e-3, 100, 0, 0, {}}, 10, {{10, 1e-4}});  // a warm-up longer than the run
}

}  // namespace
}  // namespace rf::train
