#include "interrupt_watch.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "command.h"

namespace rf::cli {

namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM};

// A handler may use these: sem_post is async-signal-safe.
sem_t changed;
volatile std::sig_atomic_t received = 0;

extern "C" void on_signal(int number) {
  received = number;
  sem_post(&changed);
}

}  // namespace

InterruptWatch::InterruptWatch(std::function<bool()> keep) : keep_(std::move(keep)) {
  received = 0;
  sem_init(&changed, 0, 0);
  thread_ = std::thread([this] { wait(); });
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &earlier_[i]);
    if (earlier_[i].sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESETHAND | SA_RESTART;
    sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptWatch::~InterruptWatch() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &earlier_[i], nullptr);
  sem_post(&changed);
  thread_.join();
  sem_destroy(&changed);
}

void InterruptWatch::wait() {
  while (sem_wait(&changed) != 0) {  // interrupted
  }
  if (received == 0 || !keep_()) return;
  std::fflush(nullptr);
  ::_exit(kSignalBase + received);  // other threads are busy or wait for input
}

}  // namespace rf::cli
