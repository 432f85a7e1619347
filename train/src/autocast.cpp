#include "autocast.h"

#include <ATen/autocast_mode.h>

namespace rf::train {

AutocastScope::AutocastScope(Precision precision)
    : active_(precision == Precision::kBfloat16),
      was_enabled_(at::autocast::is_autocast_enabled(at::kCPU)),
      dtype_before_(at::autocast::get_autocast_dtype(at::kCPU)) {
  if (!active_) return;
  at::autocast::increment_nesting();
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  at::autocast::set_autocast_enabled(at::kCPU, was_enabled_);
  at::autocast::set_autocast_dtype(at::kCPU, dtype_before_);
  at::autocast::decrement_nesting();
  at::autocast::clear_cache();
}

}  // namespace rf::train
