// What is said on stderr: a terminal's line is rewritten and its last state stays, a log gets a line every 30 seconds,
// messages stay in both, and neither gets what steers a terminal. The clock is the test's.
#include "rf/io/progress.h"

#include <gtest/gtest.h>

#include <string>

namespace rf::io {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class ProgressTest : public ::testing::Test {
 protected:
  template <typename Action>
  std::string shown(Progress::Show show, Action&& action) {
    ::testing::internal::CaptureStderr();
    {
      Progress progress(show, [this] { return now_; });
      action(progress);
    }
    return ::testing::internal::GetCapturedStderr();
  }
  void wait(double seconds) { now_ += static_cast<int64_t>(seconds * kSecond); }

  int64_t now_ = 17 * kSecond;
};

TEST_F(ProgressTest, NothingWhereNothingIsAskedForOrGiven) {
  const auto all = [&](Progress& progress) {
    progress.update("1 of 2");
    wait(60);
    progress.message("done");
    progress.finish();
  };
  EXPECT_EQ(shown(Progress::Show::kNothing, all), "");
  EXPECT_EQ(shown(Progress::Show::kTerminal, [](Progress&) {}), "");
  EXPECT_EQ(shown(Progress::Show::kLog, [](Progress&) {}), "");
}

TEST_F(ProgressTest, ATerminalShowsALineTenTimesASecondAndTheLastOne) {
  const std::string text = shown(Progress::Show::kTerminal, [&](Progress& progress) {
    for (int i = 1; i <= 7; ++i) {
      progress.update(std::to_string(i));
      wait(0.05);
    }
    progress.update("8");
    progress.finish();
    progress.finish();
  });
  EXPECT_EQ(text, "\r\x1b[K1\r\x1b[K3\r\x1b[K5\r\x1b[K7\r\x1b[K8\n");
}

TEST_F(ProgressTest, ATerminalKeepsMessagesAboveTheLine) {
  const std::string text = shown(Progress::Show::kTerminal, [&](Progress& progress) {
    progress.message("begun");
    progress.update("1 of 2");
    progress.message("held-out loss 2.5");
    wait(1);
    progress.update("2 of 2");
    progress.clear();
  });
  EXPECT_EQ(text, "begun\n\r\x1b[K1 of 2\r\x1b[Kheld-out loss 2.5\n1 of 2\r\x1b[K2 of 2\r\x1b[K");
}

TEST_F(ProgressTest, ALogGetsALineEveryThirtySecondsAndEveryMessage) {
  const std::string text = shown(Progress::Show::kLog, [&](Progress& progress) {
    for (int second = 0; second <= 100; ++second) {
      progress.update(std::to_string(second));
      if (second == 70) progress.message("held-out loss 2.5");
      wait(1);
    }
    progress.finish();
  });
  EXPECT_EQ(text, "30\n60\nheld-out loss 2.5\n100\n");
}

TEST_F(ProgressTest, PartsAreNamedFromTheOuterOneIn) {
  const std::string text = shown(Progress::Show::kLog, [&](Progress& progress) {
    const Progress::Part outer(progress, "run 1 of 2");
    for (const char* name : {"training", "measuring"}) {
      const Progress::Part inner(progress, name);
      wait(30);
      progress.update("step 3");
      progress.message("held-out loss 2.5");
    }
    wait(30);
    progress.update("done");
  });
  EXPECT_EQ(text,
            "run 1 of 2: training: step 3\nrun 1 of 2: training: held-out loss 2.5\n"
            "run 1 of 2: measuring: step 3\nrun 1 of 2: measuring: held-out loss 2.5\nrun 1 of 2: done\n");
}

TEST_F(ProgressTest, NothingSteersTheTerminal) {
  const auto hostile = [](Progress& progress) {
    const Progress::Part part(progress, "a\x1b[31m");
    progress.message("\x1b]0;x\x07 \xE2\x80\xAEtxt");
    progress.update("b\r");
  };
  EXPECT_EQ(shown(Progress::Show::kTerminal, hostile),
            "a\\x1b[31m: \\x1b]0;x\\x07 \\u202etxt\n\r\x1b[Ka\\x1b[31m: b\\x0d\n");
}

TEST(Duration, HasMinutesAndSecondsOrHoursAndMinutes) {
  EXPECT_EQ(duration_text(0.4), "0m00s");
  EXPECT_EQ(duration_text(185.2), "3m05s");
  EXPECT_EQ(duration_text(3600 + 7 * 60 + 50), "1h07m");
}

TEST(TimeEstimate, SaysWhatIsLeftByThePartDoneSinceTheStart) {
  int64_t now = 5 * kSecond;
  const TimeEstimate estimate(100, 40, [&] { return now; });
  EXPECT_EQ(estimate.left(40), "");
  now += 10 * kSecond;  // 20 of the 60 that were left
  EXPECT_EQ(estimate.left(60), ", 0m20s left");
  EXPECT_EQ(estimate.left(100), ", 0m00s left");
  EXPECT_EQ(estimate.left(101), "");
  EXPECT_EQ(estimate.seconds(), 10);
}

TEST(Counted, ShowsPartsDoneOfThoseThereAre) {
  ::testing::internal::CaptureStderr();
  Progress progress(Progress::Show::kTerminal);
  const auto tick = counted(progress, "evaluating", 40);
  tick(40);
  progress.finish();
  counted(progress, "predicting", 1)(2);  // more than was thought
  progress.finish();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "\r\x1b[Kevaluating: 40 of 40, 0m00s left\n\r\x1b[Kpredicting: 2 of 2\n");
}

}  // namespace
}  // namespace rf::io
