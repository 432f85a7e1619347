// Work space of a thread (see the header).
#include "scratch.h"

#include <cstdlib>
#include <memory>

namespace rf::core {
namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

}  // namespace

void* thread_scratch(int64_t bytes) noexcept {
  thread_local std::unique_ptr<void, Free> memory;
  thread_local int64_t held = 0;
  if (bytes > held) {
    constexpr int64_t kAlignment = 64;
    const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    memory.reset(std::aligned_alloc(kAlignment, static_cast<size_t>(rounded)));
    held = memory == nullptr ? 0 : rounded;
  }
  return memory.get();
}

}  // namespace rf::core
