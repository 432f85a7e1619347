// Bytes of the existing tensors of a device, as torch's allocator counts them: parameters, moments, activations,
// gradients. Unlike resident memory, this does not depend on what the C library keeps.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

namespace rf::train {

// While it exists, counts tensors made on this thread and in backward passes that it starts.
class TensorMemoryScope {
 public:
  explicit TensorMemoryScope(c10::DeviceType device = c10::kCPU)
      : counter_(std::make_shared<Counter>(device)), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}
  int64_t peak_bytes() const { return counter_->peak; }

 private:
  struct Counter : c10::MemoryReportingInfoBase {
    explicit Counter(c10::DeviceType device) : type(device) {}
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device device) override {
      if (device.type() != type) return;
      peak = std::max(peak.load(), current += bytes);
    }
    bool memoryProfilingEnabled() const override { return true; }
    const c10::DeviceType type;
    std::atomic<int64_t> current = 0, peak = 0;
  };

  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace rf::train
