// The progress line: nothing when the output is no terminal, the last line always shown otherwise.
#include "rf/io/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace rf::io {
namespace {

template <typename Action>
std::string stderr_of(Action&& action) {
  ::testing::internal::CaptureStderr();
  action();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Progress, SilentWhenDisabledOrUnused) {
  EXPECT_EQ(stderr_of([] {
              Progress progress(false);
              progress.update("1 of 2");
              progress.finish();
            }),
            "");
  EXPECT_EQ(stderr_of([] { Progress progress(true); }), "");
}

TEST(Progress, ShowsTheFirstAndTheLastLine) {
  const std::string shown = stderr_of([] {
    Progress progress(true);
    for (int i = 1; i <= 1000; ++i) progress.update(std::to_string(i));
    progress.finish();
    progress.finish();
  });
  EXPECT_TRUE(shown.starts_with("\r\x1b[K1\r")) << shown;
  EXPECT_TRUE(shown.ends_with("\r\x1b[K1000\n")) << shown;
  EXPECT_LT(std::count(shown.begin(), shown.end(), '\r'), 500) << "ten times a second at most";
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 1);
}

}  // namespace
}  // namespace rf::io
