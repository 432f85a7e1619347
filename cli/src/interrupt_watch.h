// What a command does when SIGINT or SIGTERM ends it.
#pragma once

#include <semaphore.h>

#include <array>
#include <csignal>
#include <functional>
#include <thread>

namespace rf::cli {

// While it lives, the first SIGINT or SIGTERM calls `keep` in a thread of its own, at once, whatever other threads wait
// for; if that returns true, the process ends with 128 + the signal's number. A second signal has its usual effect. A
// signal that the parent process ignores (nohup) stays ignored. One at a time.
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
