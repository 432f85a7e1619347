// Records SIGINT and SIGTERM during a run, so that the loop can write a checkpoint and end. A second signal has its
// usual effect, but not a second SIGTERM to a process of a job, which a scheduler and the launcher may both send. The
// previous handlers are restored when the scope ends.
#pragma once

#include <csignal>

namespace rf::train {

class InterruptScope {
 public:
  enum class Process { kAlone, kOfJob };
  explicit InterruptScope(Process process = Process::kAlone);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  int received() const;  // the signal's number, or 0

 private:
  struct sigaction old_int_ {
  }, old_term_{};
};

}  // namespace rf::train
