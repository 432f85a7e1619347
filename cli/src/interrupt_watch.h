// Action of a command when SIGINT or SIGTERM ends it.
#pragma once

#include <semaphore.h>

#include <array>
#include <csignal>
#include <functional>
#include <thread>

namespace rf::cli {

// While it exists, the first SIGINT or SIGTERM immediately calls `keep` in a separate thread, even if other threads are
// waiting. If `keep` returns true, the process exits with 128 + the signal's number. A second signal has its usual
// effect. A signal that the parent process ignores (nohup) stays ignored. Only one may exist at a time.
class InterruptWatch {
 public:
  explicit InterruptWatch(std::function<bool()> keep);
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

 private:
  void wait();

  std::function<bool()> keep_;
  std::array<struct sigaction, 2> earlier_{};
  std::thread thread_;
};

}  // namespace rf::cli
