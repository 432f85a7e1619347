// Arrays for vectors, aligned to 64 bytes and not initialised.
#pragma once

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace rf::core {

struct FreeArray {
  void operator()(void* memory) const { std::free(memory); }
};
template <class T>
using AlignedArray = std::unique_ptr<T[], FreeArray>;

template <class T>
AlignedArray<T> aligned_array(int64_t count) {
  const auto bytes = static_cast<size_t>(std::max<int64_t>(1, count)) * sizeof(T);
  AlignedArray<T> array(static_cast<T*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
  if (array == nullptr) throw std::bad_alloc();
  return array;
}

// Memory that is read repeatedly, aligned to 64 bytes; in pages of 2 MiB if it is that large and the system provides
// them, because small pages reduce the reading speed to two thirds. Returns nullptr if memory runs out.
inline void* huge_memory(size_t bytes) noexcept {
  constexpr size_t kPage = size_t{2} << 20;
  void* memory = nullptr;
  if (posix_memalign(&memory, bytes < kPage ? 64 : kPage, bytes) != 0) return nullptr;
#if defined(__linux__)
  if (bytes >= kPage) madvise(memory, bytes / kPage * kPage, MADV_HUGEPAGE);  // only advice; the system may ignore it
#endif
  return memory;
}

// An array for long life in such memory.
template <class T>
AlignedArray<T> huge_array(int64_t count) {
  AlignedArray<T> array(static_cast<T*>(huge_memory(static_cast<size_t>(std::max<int64_t>(1, count)) * sizeof(T))));
  if (array == nullptr) throw std::bad_alloc();
  return array;
}

}  // namespace rf::core
