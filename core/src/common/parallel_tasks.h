// The parallel loop of the kernels: tasks dealt out to threads, each thread with separate work space. No exception may
// leave an OpenMP region, so the first exception is kept, tasks that have not begun are skipped, and the exception is
// rethrown to the caller at the end.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <utility>

#include "common/scratch.h"

namespace rf::core {

// kStatic: a thread takes one contiguous share. kDynamic: an idle thread takes the next `chunk` tasks, so a task may
// wait for an earlier one.
enum class Schedule { kStatic, kDynamic };

struct TaskLoop {
  int64_t count = 0;
  bool parallel = true;     // false if a second thread does not pay off
  int64_t space_bytes = 0;  // of work space
  int64_t chunk = 1;
};

// The first exception of several threads.
class FirstError {
 public:
  bool any() const { return any_; }
  void keep(std::exception_ptr error) noexcept {
    const std::lock_guard lock(mutex_);
    if (error_ == nullptr) error_ = std::move(error);
    any_ = true;
  }
  void rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> any_ = false;
  std::mutex mutex_;
  std::exception_ptr error_;
};

struct NothingToLeave {
  void operator()(int64_t) const {}
};

// task(i, space) for i below count. Rethrows exceptions of tasks, and throws std::bad_alloc if work space cannot be
// allocated. leave(i) is then called, on several threads, for each skipped task, because others may wait for it.
template <Schedule kSchedule, class Task, class Leave = NothingToLeave>
void parallel_tasks(const TaskLoop& loop, const Task& task, const Leave& leave = {}) {
  const int64_t count = loop.count, bytes = std::max<int64_t>(loop.space_bytes, 1);
  if (!loop.parallel || omp_get_max_threads() == 1) {
    const Scratch space(bytes);
    if (space.get() == nullptr) throw std::bad_alloc();
    for (int64_t i = 0; i < count; ++i) task(i, space.get());
    return;
  }
  FirstError error;
#pragma omp parallel
  {
    const Scratch space(bytes);
    if (space.get() == nullptr) error.keep(std::make_exception_ptr(std::bad_alloc()));
    const auto attempt = [&](int64_t i) noexcept {
      if (error.any()) return leave(i);
      try {
        task(i, space.get());
      } catch (...) {
        error.keep(std::current_exception());
        leave(i);
      }
    };
    if constexpr (kSchedule == Schedule::kStatic) {
#pragma omp for schedule(static) nowait
      for (int64_t i = 0; i < count; ++i) attempt(i);
    } else {
#pragma omp for schedule(monotonic : dynamic, loop.chunk) nowait
      for (int64_t i = 0; i < count; ++i) attempt(i);
    }
  }
  error.rethrow();
}

}  // namespace rf::core
