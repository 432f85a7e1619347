// The choice of a device, and numbers read from it (device.h).
#include "device.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/train/device.h"

namespace rf::train {

namespace {

constexpr std::string_view kCuda = "cuda";

int64_t gpus() {
  return c10::impl::hasDeviceGuardImpl(at::kCUDA) ? c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount() : 0;
}

// The devices that there are.
std::string of_these() {
  if (gpus() == 0) return "auto or cpu";
  return gpus() == 1 ? "auto, cpu or cuda:0" : fmt::format("auto, cpu or cuda:0 to cuda:{}", gpus() - 1);
}

std::string seen() { return gpus() == 1 ? "1 GPU" : fmt::format("{} GPUs", gpus()); }

bool is_number(std::string_view text) {
  constexpr size_t kMostDigits = 4;
  return !text.empty() && text.size() <= kMostDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string resolved_device(const std::string& command, const std::string& given) {
  const char* const rank = std::getenv("LOCAL_RANK");
  const auto refuse = [&](const std::string& rule, const std::string& got) {
    fail(command, "--device must be {}, got {}; PyTorch sees {}", rule, got, seen());
  };
  if (given == "cpu" || (given == "auto" && gpus() == 0)) return "cpu";
  std::string number;
  if (given == "auto" || given == kCuda) {
    number = rank != nullptr ? rank : "0";
  } else if (given.starts_with("cuda:")) {
    number = given.substr(kCuda.size() + 1);
    if (rank != nullptr) refuse("auto, cpu or cuda under torchrun, which gives each process a GPU", given);
  }
  if (!is_number(number)) refuse("auto, cpu, cuda or cuda:<number>", io::printable(given));
  if (std::atoll(number.c_str()) >= gpus()) {
    refuse(of_these(), rank != nullptr ? fmt::format("cuda:{} of LOCAL_RANK {}", number, rank)
                                       : fmt::format("cuda:{}", std::atoll(number.c_str())));
  }
  return fmt::format("cuda:{}", std::atoll(number.c_str()));
}

bool needs_python(const std::string& resolved) {
  return resolved != "cpu" && !c10::Dispatcher::singleton().findSchema({"roformer::gpu_missing", ""});
}

at::Device open_device(const std::string& command, const std::string& given) {
  const at::Device device(resolved_device(command, given));
  if (!device.is_cuda()) return device;
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // what torch asks for
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  return device;
}

at::Device device_of(const torch::nn::Module& module) { return module.parameters().at(0).device(); }

Readback::Readback(const at::Tensor& numbers) : numbers_(numbers) {
  if (!numbers.is_cuda()) return;
  const bool is_pinned = at::globalContext().hasCUDA();
  numbers_ = at::empty(numbers.sizes(), numbers.options().device(at::kCPU).pinned_memory(is_pinned));
  numbers_.copy_(numbers, /*non_blocking=*/true);
  is_copied_.emplace(numbers.device().type());
  is_copied_->record(c10::impl::VirtualGuardImpl(numbers.device().type()).getStream(numbers.device()));
}

const at::Tensor& Readback::read() {
  if (is_copied_) is_copied_->synchronize();
  return numbers_;
}

}  // namespace rf::train
