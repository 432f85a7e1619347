// AutocastScope leaves the thread's autocast as it was, whoever had switched it on.
#include "autocast.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

namespace rf::train {
namespace {

TEST(AutocastScope, IsOnWhileItLivesAndGoesBackToWhatWasBefore) {
  const auto is_enabled = [] { return at::autocast::is_autocast_enabled(at::kCPU); };
  const at::ScalarType dtype = at::autocast::get_autocast_dtype(at::kCPU);
  for (const bool before : {false, true}) {
    at::autocast::set_autocast_enabled(at::kCPU, before);
    at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
    for (const Precision precision : {Precision::kBfloat16, Precision::kFloat32}) {
      {
        const AutocastScope scope(precision);
        if (precision == Precision::kBfloat16) {
          EXPECT_TRUE(is_enabled());
          EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kBFloat16);
        } else {
          EXPECT_EQ(is_enabled(), before);
        }
      }
      EXPECT_EQ(is_enabled(), before);
      EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kHalf);
    }
  }
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::set_autocast_dtype(at::kCPU, dtype);
}

}  // namespace
}  // namespace rf::train
