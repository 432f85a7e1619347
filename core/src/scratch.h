// Work space of a thread: it grows to the largest request and is kept, so that a repeated call allocates nothing.
#ifndef RF_CORE_SCRATCH_H_
#define RF_CORE_SCRATCH_H_

#include <cstdint>

namespace rf::core {

// At least `bytes` bytes aligned to 64, valid until the next request of this thread; nullptr when there is no memory.
void* thread_scratch(int64_t bytes) noexcept;

}  // namespace rf::core
#endif
