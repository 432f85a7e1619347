// Ends a long call early, as Python needs it for Ctrl-C.
#pragma once

#include <functional>

#include "rf/engine/model.h"

namespace rf::engine {

// While it exists, what this thread computes calls `check` before each layer; what that throws leaves the call.
class RF_ENGINE_API InterruptScope {
 public:
  explicit InterruptScope(std::function<void()> check);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  std::function<void()> check_;
  const std::function<void()>* before_;
};

RF_ENGINE_API void check_interrupt();

}  // namespace rf::engine
