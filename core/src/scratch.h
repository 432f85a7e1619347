// Work space of a thread: it grows to the largest request and is kept, so that a repeated call allocates nothing.
#ifndef RF_CORE_SCRATCH_H_
#define RF_CORE_SCRATCH_H_

#include <cstdint>

namespace rf::core {

// Rows of floats in work space are whole vectors of the widest instruction set.
inline constexpr int64_t kRowFloats = 16;

inline int64_t padded(int64_t columns) {
  return (columns + kRowFloats - 1) / kRowFloats * kRowFloats;
}

// At least `bytes` bytes aligned to 64, valid until the next request of this thread; nullptr when there is no memory.
void* thread_scratch(int64_t bytes) noexcept;

}  // namespace rf::core
#endif
