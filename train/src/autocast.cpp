#include "autocast.h"

#include <ATen/autocast_mode.h>

namespace rf::train {

AutocastScope::AutocastScope(Precision precision) : active_(precision == Precision::kBfloat16) {
  if (!active_) return;
  at::autocast::increment_nesting();
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::decrement_nesting();
  at::autocast::clear_cache();
}

}  // namespace rf::train
