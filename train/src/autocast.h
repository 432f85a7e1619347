// bfloat16 where training computes in it.
#pragma once

#include "rf/train/run_config.h"

namespace rf::train {

// Autocast to bfloat16 on the CPU while the scope lives; nothing with Precision::kFloat32. Casts of weights are kept
// until the scope ends, so a scope must not span a change of the weights.
class AutocastScope {
 public:
  explicit AutocastScope(Precision precision);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool active_;
};

}  // namespace rf::train
