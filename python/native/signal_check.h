// Long calls without the GIL, which Ctrl-C ends.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>

#include "bindings.h"
#include "rf/engine/interrupt.h"

namespace rf::python {

// Ctrl-C ends a long call. Asks now and then only, since other threads may hold the GIL for a while.
class SignalCheck {
 public:
  void operator()() {
    constexpr auto kInterval = std::chrono::milliseconds(50);
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < kInterval) return;
    last_ = now;
    const nanobind::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Calls `action` without the GIL, with thread_count threads; Ctrl-C ends it.
template <typename Action>
void compute(int thread_count, const Action& action) {
  const nanobind::gil_scoped_release release;
  const ThreadsScope threads(thread_count);
  const engine::InterruptScope interrupt{SignalCheck()};
  action();
}

}  // namespace rf::python
