// Work space of threads (see the header).
#include "common/scratch.h"

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "common/aligned_array.h"

namespace rf::core {
namespace {

std::atomic<int64_t> all_bytes = 0;

// The space of one thread, linked into a list over all threads.
struct Slot {
  Slot() noexcept;
  ~Slot();

  void resize(int64_t wanted) noexcept {
    std::free(memory);
    all_bytes -= bytes;
    constexpr int64_t kAlignment = 64;
    bytes = (wanted + kAlignment - 1) / kAlignment * kAlignment;
    memory = bytes == 0 ? nullptr : huge_memory(static_cast<size_t>(bytes));
    if (memory == nullptr) bytes = 0;
    all_bytes += bytes;
  }

  std::mutex in_use;
  void* memory = nullptr;
  int64_t bytes = 0;
  Slot *next = nullptr, *previous = nullptr;
};

// Links rather than an array: a thread must find its space without allocating anything else.
struct Slots {
  std::mutex mutex;
  Slot* first = nullptr;
};

// Trivially destructible, because threads may outlive static objects.
constinit Slots all_slots;

Slot::Slot() noexcept {
  const std::lock_guard lock(all_slots.mutex);
  next = all_slots.first;
  if (next != nullptr) next->previous = this;
  all_slots.first = this;
}

Slot::~Slot() {
  const std::lock_guard lock(all_slots.mutex);
  (previous == nullptr ? all_slots.first : previous->next) = next;
  if (next != nullptr) next->previous = previous;
  resize(0);
}

Slot& own_slot() noexcept {
  thread_local Slot slot;
  return slot;
}

}  // namespace

Scratch::Scratch(int64_t bytes) noexcept {
  Slot& slot = own_slot();
  slot.in_use.lock();
  if (bytes > slot.bytes) slot.resize(bytes);
  memory_ = slot.memory;
}

Scratch::~Scratch() {
  Slot& slot = own_slot();
  if (all_bytes > kMaxIdleBytes) slot.resize(0);
  slot.in_use.unlock();
}

int64_t scratch_bytes() noexcept { return all_bytes; }

void release_scratch() noexcept {
  const std::lock_guard lock(all_slots.mutex);
  for (Slot* slot = all_slots.first; slot != nullptr; slot = slot->next) {
    if (!slot->in_use.try_lock()) continue;
    slot->resize(0);
    slot->in_use.unlock();
  }
}

}  // namespace rf::core
