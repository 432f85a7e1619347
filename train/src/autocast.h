// Autocast for training in bfloat16.
#pragma once

#include <ATen/autocast_mode.h>

#include "rf/train/run_config.h"

namespace rf::train {

// Autocast to bfloat16 on a type of device while the scope exists; the previous state is restored. No effect with
// kFloat32.
// Casts of weights are kept until the scope ends, so a scope must not span a change of the weights.
class AutocastScope {
 public:
  explicit AutocastScope(Precision precision, at::Device device = at::kCPU)
      : active_(precision == Precision::kBfloat16),
        type_(device.type()),
        was_enabled_(at::autocast::is_autocast_enabled(type_)),
        dtype_before_(at::autocast::get_autocast_dtype(type_)) {
    if (!active_) return;
    at::autocast::increment_nesting();
    at::autocast::set_autocast_dtype(type_, at::kBFloat16);
    at::autocast::set_autocast_enabled(type_, true);
  }
  ~AutocastScope() {
    if (!active_) return;
    at::autocast::set_autocast_enabled(type_, was_enabled_);
    at::autocast::set_autocast_dtype(type_, dtype_before_);
    at::autocast::decrement_nesting();
    at::autocast::clear_cache();
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool active_;
  at::DeviceType type_;
  bool was_enabled_;
  c10::ScalarType dtype_before_;
};

}  // namespace rf::train
