// SIGINT and SIGTERM while a run is going: remembered, so that the loop can write a checkpoint and leave. A second
// signal has its usual effect. The handlers that were there come back when the scope ends.
#pragma once

#include <csignal>

namespace rf::train {

class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  int received() const;  // the signal's number, or 0

 private:
  struct sigaction old_int_ {
  }, old_term_{};
};

}  // namespace rf::train
