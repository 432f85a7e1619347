// Puts counting functions before those of the C library, for every library of the program (see the header).
#include "core/allocation_count.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace {
std::atomic<int64_t> count = 0;
}  // namespace

namespace rf::tests {
int64_t allocations() {
  return count;
}
}  // namespace rf::tests

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

bool rf::tests::counts_allocations() {
  return true;
}

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
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  ++count;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  ++count;
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
}

#else

bool rf::tests::counts_allocations() {
  return false;
}

#endif
