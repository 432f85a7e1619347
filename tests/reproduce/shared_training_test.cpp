// Trainings that processes share. tests/reproduce/test_two_processes.py starts real ones.
#include "shared_training.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <thread>

#include "io/support.h"
#include "rf/io/file_lock.h"
#include "silent_context.h"

namespace rf::reproduce {
namespace {

using testing::TempDir;

const std::vector<std::string> kArms = {"none", "alibi", "rope"};

TEST(Share, DoesWhatAnotherProcessHasLast) {
  const TempDir dir;
  const SilentContext silent(dir.path(), "");
  std::filesystem::create_directories(dir.file("locks/runs"));
  auto held = io::FileLock::try_hold(dir.file("locks/runs/alibi.lock"));
  ASSERT_TRUE(held);
  std::vector<size_t> done;
  std::atomic<size_t> count = 0;
  std::thread sharing([&] {
    share(silent.context, "runs", kArms, [&](size_t part) {
      done.push_back(part);
      ++count;
      return 0;
    });
  });
  while (count < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(count, 2u);
  held.reset();
  sharing.join();
  EXPECT_EQ(done, (std::vector<size_t>{0, 2, 1}));
}

TEST(Share, EndsWithASignal) {
  const TempDir dir;
  const SilentContext silent(dir.path(), "");
  size_t calls = 0;
  const auto work = [&](size_t part) {
    ++calls;
    return part == 1 ? SIGTERM : 0;
  };
  EXPECT_EQ(share(silent.context, "runs", kArms, work), SIGTERM);
  EXPECT_EQ(calls, 2u);
}

struct Trained {
  std::string arm;
  int signal = 0;
};

TEST(TrainShared, KeepsTheOrderOfArms) {
  const TempDir dir;
  SilentContext silent(dir.path(), "");
  std::filesystem::create_directories(dir.file("locks/runs"));
  auto held = io::FileLock::try_hold(dir.file("locks/runs/none.lock"));
  std::vector<std::string> order;
  const auto trained = train_shared(silent.context, "runs", kArms, [&](const Context& own, const std::string& arm) {
    order.push_back(arm);
    if (order.size() == 2) held.reset();
    own.log.rates.push_back({.arm = arm, .rates = {}, .losses = {}});
    return Trained{arm};
  });
  EXPECT_EQ(order, (std::vector<std::string>{"alibi", "rope", "none"}));
  std::vector<std::string> results, logged;
  for (const Trained& of_arm : trained.arms) results.push_back(of_arm.arm);
  for (const TriedRates& rates : silent.log.rates) logged.push_back(rates.arm);
  EXPECT_EQ(results, kArms);
  EXPECT_EQ(logged, kArms);
  EXPECT_EQ(trained.signal, 0);
}

}  // namespace
}  // namespace rf::reproduce
