// Arrays for vectors, aligned to 64 bytes and not initialised.
#ifndef RF_CORE_COMMON_ALIGNED_ARRAY_H_
#define RF_CORE_COMMON_ALIGNED_ARRAY_H_

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

}  // namespace rf::core
#endif
