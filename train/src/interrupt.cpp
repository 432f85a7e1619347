// Records SIGINT and SIGTERM (interrupt.h).
#include "interrupt.h"

namespace rf::train {

namespace {
volatile std::sig_atomic_t received_signal = 0;
extern "C" void remember_signal(int number) { received_signal = number; }
}  // namespace

InterruptScope::InterruptScope(Process process) {
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = remember_signal;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, &old_int_);
  if (process == Process::kOfJob) action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, &old_term_);
}

InterruptScope::~InterruptScope() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
}

int InterruptScope::received() const { return received_signal; }

}  // namespace rf::train
