// Memory without initial values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace rf::engine {

using Floats = std::unique_ptr<float[]>;
inline Floats make_floats(int64_t count) { return std::make_unique_for_overwrite<float[]>(static_cast<size_t>(count)); }

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte[], FreeMemory>;
// Aligned to 64 bytes. Throws std::bad_alloc.
inline AlignedMemory make_aligned(int64_t bytes) {
  AlignedMemory memory(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64))));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace rf::engine
