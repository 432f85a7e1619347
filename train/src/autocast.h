// Autocast for training in bfloat16.
#pragma once

#include <c10/core/ScalarType.h>

#include "rf/train/run_config.h"

namespace rf::train {

// Autocast to bfloat16 on the CPU while the scope exists; the previous state is restored. No effect with kFloat32.
// Casts of weights are kept until the scope ends, so a scope must not span a change of the weights.
class AutocastScope {
 public:
  explicit AutocastScope(Precision precision);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool active_, was_enabled_;
  c10::ScalarType dtype_before_;
};

}  // namespace rf::train
