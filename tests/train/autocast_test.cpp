// AutocastScope leaves the thread's autocast as it was, whoever had switched it on.
#include "autocast.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

namespace rf::train {
namespace {

bool is_enabled() { return at::autocast::is_autocast_enabled(at::kCPU); }

TEST(AutocastScope, IsOnWhileItLives) {
  ASSERT_FALSE(is_enabled());
  {
    const AutocastScope scope(Precision::kBfloat16);
    EXPECT_TRUE(is_enabled());
    EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kBFloat16);
  }
  EXPECT_FALSE(is_enabled());
  const AutocastScope none(Precision::kFloat32);
  EXPECT_FALSE(is_enabled());
}

TEST(AutocastScope, GoesBackToWhatWasBefore) {
  const at::ScalarType dtype = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  for (const Precision precision : {Precision::kBfloat16, Precision::kFloat32}) {
    { const AutocastScope scope(precision); }
    EXPECT_TRUE(is_enabled());
    EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kHalf);
  }
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::set_autocast_dtype(at::kCPU, dtype);
}

}  // namespace
}  // namespace rf::train
