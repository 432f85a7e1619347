// Devices of runs (rf/train/device.h), for code with torch.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <torch/nn/module.h>

#include <optional>
#include <string>

namespace rf::train {

// resolved_device() as torch's. A GPU becomes the current device of this thread, and for the rest of the process
// torch's own operators add gradients in a fixed order, so that a resumed run has the bits of an uninterrupted one.
at::Device open_device(const std::string& command, const std::string& given);

// The device of the parameters.
at::Device device_of(const torch::nn::Module& module);

// Numbers that a device may still compute, on their way to the CPU. Several may be on their way.
class Readback {
 public:
  explicit Readback(const at::Tensor& numbers);
  // On the CPU; waits for the work on the device up to the constructor's call, not for later work.
  const at::Tensor& read();

 private:
  at::Tensor numbers_;
  std::optional<c10::Event> is_copied_;
};

}  // namespace rf::train
