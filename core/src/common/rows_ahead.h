// Prefetches rows that a kernel will read or write soon, a few at a time between blocks of a product: the rows of one
// head lie far from each other in memory, and more requests than the processor keeps open would stall it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rf::core {

enum class Access { kRead, kWrite };

class RowsAhead {
 public:
  // `count` rows of `bytes` bytes with a stride of `stride` bytes.
  template <Access kAccess>
  void add(const void* first, int64_t stride, int64_t count, int64_t bytes) {
    if (count <= 0 || runs_ == kMaxRuns) return;
    run_[runs_++] = {static_cast<const char*>(first), stride, count, bytes, kAccess};
    waiting_ += count;
  }
  // Spreads the waiting prefetches over this many steps.
  void spread(int64_t steps) { rows_of_step_ = (waiting_ + steps - 1) / steps; }
  void step() {
    if (waiting_ > 0) ask(rows_of_step_);
  }
  void finish() { ask(waiting_); }

 private:
  static constexpr int kMaxRuns = 8;
  struct Run {
    const char* row;
    int64_t stride, count, bytes;
    Access access;
  };

  // Not inline: products need all registers.
  __attribute__((noinline)) void ask(int64_t rows) {
    rows = std::min(rows, waiting_);
    waiting_ -= rows;
    while (rows > 0) {
      Run& run = run_[runs_ - 1];
      const int64_t count = std::min(rows, run.count);
      if (run.access == Access::kWrite) {
        ask_for<Access::kWrite>(run, count);
      } else {
        ask_for<Access::kRead>(run, count);
      }
      rows -= count;
      run.row += count * run.stride;
      run.count -= count;
      if (run.count == 0) --runs_;
    }
  }

  template <Access kAccess>
  static void ask_for(const Run& run, int64_t count) {
    constexpr int64_t kLine = 64;
    const char* row = run.row;
    for (int64_t i = 0; i < count; ++i, row += run.stride) {
      for (int64_t at = 0; at < run.bytes; at += kLine) __builtin_prefetch(row + at, kAccess == Access::kWrite, 2);
    }
  }

  Run run_[kMaxRuns];
  int runs_ = 0;
  int64_t waiting_ = 0, rows_of_step_ = 1;
};

}  // namespace rf::core
