// Records SIGINT and SIGTERM during a run, so that the loop can write a checkpoint and end. A second signal has its
// usual effect, but not a second SIGTERM to a process of a job, which a scheduler and the launcher may both send. The
// previous handlers are restored when the scope ends.
#pragma once

#include <csignal>

namespace rf::train {

inline volatile std::sig_atomic_t received_signal = 0;
extern "C" inline void remember_signal(int number) { received_signal = number; }

class InterruptScope {
 public:
  enum class Process { kAlone, kOfJob };
  explicit InterruptScope(Process process = Process::kAlone) {
    received_signal = 0;
    struct sigaction action {};
    action.sa_handler = remember_signal;
    action.sa_flags = SA_RESETHAND | SA_RESTART;
    sigaction(SIGINT, &action, &old_int_);
    if (process == Process::kOfJob) action.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &action, &old_term_);
  }
  ~InterruptScope() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
  }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  int received() const { return received_signal; }  // the signal's number, or 0

 private:
  struct sigaction old_int_ {
  }, old_term_{};
};

}  // namespace rf::train
