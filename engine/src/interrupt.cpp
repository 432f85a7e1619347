// Calls that end early (rf/engine/interrupt.h).
#include "rf/engine/interrupt.h"

#include <utility>

namespace rf::engine {

namespace {

thread_local const std::function<void()>* check_of_thread = nullptr;

}  // namespace

InterruptScope::InterruptScope(std::function<void()> check) : check_(std::move(check)), before_(check_of_thread) {
  check_of_thread = &check_;
}

InterruptScope::~InterruptScope() { check_of_thread = before_; }

void check_interrupt() {
  if (check_of_thread != nullptr) (*check_of_thread)();
}

}  // namespace rf::engine
