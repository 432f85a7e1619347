// Two CUDA devices whose memory is the host's, for tests where there is no GPU. Loaded into a process, it makes
// tensors on "cuda:0" and "cuda:1" possible with a PyTorch that was built without CUDA. Every operator runs on the CPU,
// on the same memory, so results have the bits of the CPU; what a GPU refuses is refused:
//
//   - an operator of tensors on the CPU (of more than a number) and on a device, or on two devices;
//   - a data pointer that host code reads is not found by this, because the memory is the host's: such code must check
//     the device (nn/src/known_values.h).
//
// It must be loaded before torch, which asks once whether there is CUDA. EMULATED_GPU_BYTES limits the size of an
// allocation; a larger one is out of memory, as c10::OutOfMemoryError. After EMULATED_GPU_OPERATORS operators the
// device fails, as c10::AcceleratorError.
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

namespace {

thread_local c10::DeviceIndex current = 0;
constexpr c10::DeviceIndex kDevices = 2;
const c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

struct Memory : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const char* const most = std::getenv("EMULATED_GPU_BYTES");
    TORCH_CHECK_WITH(OutOfMemoryError, most == nullptr || bytes <= std::strtoull(most, nullptr, 10),
                     "CUDA out of memory. Tried to allocate ", bytes, " bytes");
    void* const data = bytes == 0 ? nullptr : std::malloc(bytes);
    return {data, data, &std::free, c10::Device(c10::kCUDA, current)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Memory memory;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::kCUDA;
  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  c10::DeviceType type() const override { return static_type; }
  c10::Device getDevice() const override { return {static_type, current}; }
  void setDevice(c10::Device device) const override { current = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current = device.index(); }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    if (device.has_index()) current = device.index();
    return before;
  }
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return getStream(stream.device()); }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override { *event = &memory; }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  void synchronizeEvent(void*) const override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

// Registered under this name.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return kDevices; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex current_device() const override { return current; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void deviceSynchronize(c10::DeviceIndex) const override {}
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::kCPU); }
};

// x on the CPU, in the same storage. An empty tensor has its own, which an operator may resize.
at::Tensor alias_of(const at::Tensor& x) {
  const auto options = x.options().device(at::kCPU).requires_grad(false);
  if (x.numel() == 0) return at::empty(x.sizes(), options);
  const auto elements = static_cast<int64_t>(x.storage().nbytes() / x.element_size());
  return at::from_blob(x.storage().mutable_data(), {elements}, options)
      .as_strided(x.sizes(), x.strides(), x.storage_offset());
}

// The tensors of one call that are on the device, and their aliases on the CPU.
class Call {
 public:
  explicit Call(const c10::OperatorHandle& op) : op_(op) {}

  at::Tensor on_cpu(const at::Tensor& x) {
    if (!x.defined()) return x;
    if (!x.is_cuda()) {
      TORCH_CHECK(x.dim() == 0 || !x.is_cpu(), "Expected all tensors to be on the same device, but ",
                  op_.schema().name(), " got ", x.device(), " ", x.sizes(), " besides ",
                  device_.value_or(c10::Device(c10::kCUDA)));
      return x;
    }
    TORCH_CHECK(!device_ || *device_ == x.device(), "Expected all tensors to be on the same device, but ",
                op_.schema().name(), " got ", x.device(), " besides ", *device_);
    device_ = x.device();
    given_.emplace_back(x, alias_of(x));
    return given_.back().second;
  }

  at::Tensor on_device(const at::Tensor& x) {
    if (!x.defined() || !x.is_cpu() || !device_) return x;
    for (const auto& [given, alias] : given_) {
      if (!x.is_same(alias)) continue;
      adopt(given, x);
      return given;
    }
    for (const auto& [given, alias] : given_) {  // a view
      const auto* const begin = static_cast<const char*>(given.storage().data());
      const auto* const data = static_cast<const char*>(x.const_data_ptr());
      if (begin == nullptr || data < begin || data >= begin + given.storage().nbytes()) continue;
      return tensor(c10::Storage(given.storage()), x, (data - begin) / static_cast<int64_t>(x.element_size()));
    }
    return tensor(storage_of(x), x, 0);
  }

  // Results that were resized in place.
  void adopt_all() {
    for (const auto& [given, alias] : given_) adopt(given, alias);
  }

 private:
  c10::Storage storage_of(const at::Tensor& x) const {
    auto* const kept = new at::Tensor(x);
    c10::DataPtr data(
        const_cast<void*>(x.const_data_ptr()), kept, [](void* tensor) { delete static_cast<at::Tensor*>(tensor); },
        *device_);
    const size_t bytes = x.storage().nbytes() - static_cast<size_t>(x.storage_offset()) * x.element_size();
    return {c10::Storage::use_byte_size_t(), bytes, std::move(data), &memory, /*resizable=*/false};
  }

  static at::Tensor tensor(c10::Storage storage, const at::Tensor& like, int64_t offset) {
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), kKeys, like.dtype());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), offset);
    return made;
  }

  void adopt(const at::Tensor& given, const at::Tensor& alias) const {
    if (given.numel() > 0 || alias.numel() == 0) return;
    given.unsafeGetTensorImpl()->set_storage_keep_dtype(storage_of(alias));
    given.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides(), 0);
  }

  const c10::OperatorHandle& op_;
  std::optional<c10::Device> device_;
  std::vector<std::pair<at::Tensor, at::Tensor>> given_;
};

template <class Change>
void change_tensors(c10::IValue& value, const Change& change) {
  if (value.isTensor()) {
    value = change(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> changed;
    for (const at::Tensor& x : value.toTensorVector()) changed.push_back(change(x));
    value = changed;
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> changed;
    for (const std::optional<at::Tensor>& x : value.toOptionalTensorVector()) {
      changed.push_back(x ? std::optional(change(*x)) : std::nullopt);
    }
    value = changed;
  }
}

void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  static std::atomic<int64_t> done = 0;
  const char* const most = std::getenv("EMULATED_GPU_OPERATORS");
  if (++done > (most == nullptr ? INT64_MAX : std::atoll(most))) {
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 46,
                                "CUDA error: all CUDA-capable devices are busy\nFor debugging, ask again");
  }
  Call call(op);
  const size_t arguments = op.schema().arguments().size(), begin = stack->size() - arguments;
  // Tensors of the device first, which say which device it is.
  for (size_t i = begin; i < stack->size(); ++i) {
    if ((*stack)[i].isDevice() && (*stack)[i].toDevice().is_cuda()) (*stack)[i] = c10::Device(at::kCPU);
    change_tensors((*stack)[i], [&](const at::Tensor& x) { return call.on_cpu(x); });
  }
  op.callBoxed(stack);
  call.adopt_all();
  for (c10::IValue& result : *stack) change_tensors(result, [&](const at::Tensor& x) { return call.on_device(x); });
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  const c10::Device before = guard.exchangeDevice(device.value_or(guard.getDevice()));
  at::Tensor made = at::detail::empty_generic(size, &memory, kKeys, c10::dtype_or_default(dtype), format);
  guard.setDevice(before);
  return made;
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  const c10::Device before = guard.exchangeDevice(device.value_or(guard.getDevice()));
  at::Tensor made = at::detail::empty_strided_generic(size, stride, &memory, kKeys, c10::dtype_or_default(dtype));
  guard.setDevice(before);
  return made;
}

// The operator that may have tensors on two devices.
at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool) {
  alias_of(to).copy_(alias_of(from));
  return to;
}

C10_REGISTER_GUARD_IMPL(CUDA, Guard)
REGISTER_ALLOCATOR(c10::kCUDA, &memory)

TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("copy_", copy);
}

}  // namespace

namespace at {
using ::CUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
