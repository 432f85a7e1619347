// The parallel loop of the kernels: every task runs once, and no error is lost or leaves anyone waiting.
#include "common/parallel_tasks.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace rf::tests {
namespace {

using core::parallel_tasks;
using core::Schedule;

constexpr int64_t kTasks = 100, kBytes = 640;

// How often each task ran, and how often it was left out; the task at `fault` throws.
struct Counts {
  std::vector<std::atomic<int>> run = std::vector<std::atomic<int>>(kTasks);
  std::vector<std::atomic<int>> left = std::vector<std::atomic<int>>(kTasks);

  template <Schedule kSchedule>
  void take(int64_t bytes, int64_t fault) {
    parallel_tasks<kSchedule>(
        {kTasks, true, bytes, 3},
        [&](int64_t i, void* space) {
          static_cast<char*>(space)[bytes - 1] = 1;
          if (i == fault) throw std::runtime_error("task");
          ++run[i];
        },
        [&](int64_t i) { ++left[i]; });
  }
};

template <Schedule kSchedule>
void expect_every_task_once(int threads) {
  omp_set_num_threads(threads);
  Counts counts;
  counts.take<kSchedule>(kBytes, kTasks);
  for (size_t i = 0; i < kTasks; ++i) {
    EXPECT_EQ(counts.run[i], 1) << i;
    EXPECT_EQ(counts.left[i], 0) << i;
  }
  Counts with_error;
  EXPECT_THROW(with_error.take<kSchedule>(kBytes, kTasks / 2), std::runtime_error);
  for (size_t i = 0; threads > 1 && i < kTasks; ++i) EXPECT_EQ(with_error.run[i] + with_error.left[i], 1) << i;
}

TEST(ParallelTasks, EachRunsOnceOrIsLeftOut) {
  const int before = omp_get_max_threads();
  for (const int threads : {1, 2, 5}) {
    expect_every_task_once<Schedule::kStatic>(threads);
    expect_every_task_once<Schedule::kDynamic>(threads);
  }
  omp_set_num_threads(before);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end a program that asks for so much
TEST(ParallelTasks, WithoutWorkSpaceNoneRuns) {
  const int before = omp_get_max_threads();
  for (const int threads : {1, 3}) {
    omp_set_num_threads(threads);
    Counts counts;
    EXPECT_THROW(counts.take<Schedule::kDynamic>(int64_t{1} << 60, kTasks), std::bad_alloc);
    for (const auto& run : counts.run) EXPECT_EQ(run, 0);
  }
  omp_set_num_threads(before);
}
#endif

}  // namespace
}  // namespace rf::tests
