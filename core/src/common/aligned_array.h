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

// The same for long-lived arrays that are read from memory repeatedly, in pages of 2 MiB if the system provides them:
// with small pages a processor reads at two thirds of the speed.
template <class T>
AlignedArray<T> huge_array(int64_t count) {
  constexpr size_t kPage = size_t{2} << 20;
  const auto bytes = static_cast<size_t>(count) * sizeof(T);
  if (bytes < kPage) return aligned_array<T>(count);
  void* memory = nullptr;
  if (posix_memalign(&memory, kPage, bytes) != 0) throw std::bad_alloc();
#if defined(__linux__)
  madvise(memory, bytes / kPage * kPage, MADV_HUGEPAGE);  // only advice; the system may ignore it
#endif
  return AlignedArray<T>(static_cast<T*>(memory));
}

}  // namespace rf::core
