// Memory without initial values.
#pragma once

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace rf::engine {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte[], FreeMemory>;
// Huge pages, if the system provides them, speed up access to rows at distant addresses, but may make untouched memory
// resident.
enum class Pages { kSmall, kHuge };
// Aligned to 64 bytes. Throws std::bad_alloc.
inline AlignedMemory make_aligned(int64_t bytes, Pages pages = Pages::kSmall) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const auto size = static_cast<size_t>(bytes);
  const bool is_huge = pages == Pages::kHuge && size >= kHugePage;
  void* memory = nullptr;
  if (posix_memalign(&memory, is_huge ? kHugePage : 64, size) != 0) throw std::bad_alloc();
#if defined(__linux__)
  if (is_huge) madvise(memory, size / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return AlignedMemory(static_cast<std::byte*>(memory));
}

// Arrays while a model is loaded; a third of that time would be page faults with small pages.
using Floats = std::unique_ptr<float[], FreeMemory>;
inline Floats make_floats(int64_t count) {
  return Floats(reinterpret_cast<float*>(make_aligned(count * int64_t{sizeof(float)}, Pages::kHuge).release()));
}

}  // namespace rf::engine
