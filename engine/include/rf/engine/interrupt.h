// Ends a long call early, for Ctrl-C in Python.
#pragma once

#include <functional>

#include "rf/engine/model.h"

namespace rf::engine {

// While it exists, computations of this thread call `check` before each layer; its exceptions leave the call.
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
