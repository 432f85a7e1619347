// Copies between the CPU and a model's device (devices.h).
#include "rf/nn/devices.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

namespace rf::nn {

at::Tensor on_cpu(const at::Tensor& x) { return !x.defined() || x.is_meta() ? x : x.to(at::kCPU); }

at::Tensor on_device(const at::Tensor& x, at::Device device) {
  if (!x.defined() || x.device() == device) return x;
  const bool is_pinned = x.is_cpu() && device.is_cuda() && at::globalContext().hasCUDA() && !x.requires_grad();
  return (is_pinned ? x.pin_memory() : x).to(x.options().device(device), /*non_blocking=*/true);
}

std::optional<at::ScalarType> autocast_dtype(at::Device device) {
  const c10::DeviceType type = device.type();
  if (!at::autocast::is_autocast_available(type) || !at::autocast::is_autocast_enabled(type)) return std::nullopt;
  return at::autocast::get_autocast_dtype(type);
}

}  // namespace rf::nn
