// Puts counting functions before those of the C library, for every library of the program (see the header). The working
// memory of kernels, which is aligned, is filled with NaN first.
#include "core/allocation_count.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace {
std::atomic<int64_t> count = 0;
}  // namespace

namespace rf::tests {
int64_t allocations() { return count; }
}  // namespace rf::tests

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

bool rf::tests::counts_allocations() { return true; }

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t number, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  ++count;
  return __libc_malloc(size);
}
void* calloc(size_t number, size_t size) {
  ++count;
  return __libc_calloc(number, size);
}
void* realloc(void* memory, size_t size) {
  ++count;
  return __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) {
  ++count;
  void* const memory = __libc_memalign(alignment, size);
  if (memory != nullptr) std::memset(memory, 0xff, size);
  return memory;
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
}

#else

bool rf::tests::counts_allocations() { return false; }

#endif
