// Choices of core (rf/ops/kernels.h).
#include "rf/ops/kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <string_view>

#include "core_call.h"
#include "rf/linear.h"

namespace rf::ops {

bool reference_is_asked_for() {
  const std::string_view target = rf_target();
  TORCH_CHECK_VALUE(!target.empty(), rf_last_error());
  return target == "ref";
}

namespace {

// The answer of the Python package (python/roformer_cpp/gpu/library.py).
std::string missing_on_gpu(c10::Device device) {
  const auto op = c10::Dispatcher::singleton().findSchema({"roformer::gpu_missing", ""});
  if (!op) return "the Python package roformer_cpp, which has the kernels of GPUs, got a process without it";
  torch::jit::Stack stack = {c10::IValue(device)};
  op->callBoxed(stack);
  return stack.at(0).toOptional<std::string>().value_or("");
}

}  // namespace

std::string missing_on(c10::Device device) {
  if (device.is_cpu()) return {};
  if (!device.is_cuda()) return "tensors on the CPU or a CUDA device, got " + device.str();
  const std::string missing = missing_on_gpu(device);
  if (!missing.empty()) {
    TORCH_WARN_ONCE("[attention] on ", device, " torch's operations compute attention: the kernels need ", missing);
  }
  return missing;
}

std::string linear_backend(c10::ScalarType dtype, int64_t rows) {
  const auto type = core_dtype(dtype);
  TORCH_CHECK_VALUE(type, "[linear] dtype must be float32, float64, bfloat16 or float16, got ", dtype);
  return rf_linear_backend(*type, rows, 1, 1);
}

}  // namespace rf::ops
