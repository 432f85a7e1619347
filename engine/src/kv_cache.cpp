// The cache of keys and values (see the header). Memory is [layers][2][sequences][heads][capacity][head_dim]: attention
// reads the rows of a head in sequence.
#include "kv_cache.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace rf::engine {

void KeyValueCache::Free::operator()(void* memory) const { std::free(memory); }

KeyValueCache::KeyValueCache(const Shape& shape) : SequenceCache(shape.sequences, shape.capacity), shape_(shape) {
  int64_t bytes = 2 * shape.element_bytes;
  for (const int64_t extent : {shape.layers, shape.heads, shape.head_dim, shape.sequences, shape.capacity}) {
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > INT64_MAX - 64) throw std::bad_alloc();
  }
  memory_.reset(static_cast<char*>(std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64))));
  if (memory_ == nullptr) throw std::bad_alloc();
}

char* KeyValueCache::part(int64_t layer, int64_t which, int64_t sequence) const {
  const int64_t index = (2 * layer + which) * shape_.sequences + sequence;
  return memory_.get() + index * sequence_stride() * shape_.element_bytes;
}

void KeyValueCache::store(int64_t layer, int64_t sequence, int64_t tokens, const char* keys, const char* values,
                          int64_t row_bytes) {
  const int64_t head_bytes = shape_.head_dim * shape_.element_bytes;
  const auto copy_rows = [&](const char* from, char* to) {
    for (int64_t h = 0; h < shape_.heads; ++h) {
      char* row = to + (h * shape_.capacity + length(sequence)) * head_bytes;
      for (int64_t t = 0; t < tokens; ++t)
        std::memcpy(row + t * head_bytes, from + t * row_bytes + h * head_bytes, head_bytes);
    }
  };
  copy_rows(keys, this->keys(layer, sequence));
  copy_rows(values, this->values(layer, sequence));
}

// Keys and values of a token depend only on the tokens up to it, so the common prefix stays in place.
void KeyValueCache::copy_kept(int64_t from, int64_t to, int64_t first) {
  const int64_t count = length(from) - first, row = shape_.head_dim * shape_.element_bytes;
#pragma omp parallel for schedule(static) if (count > 16)
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    for (int64_t head = 0; head < 2 * shape_.heads; ++head) {
      const int64_t offset = (head % shape_.heads * shape_.capacity + first) * row;
      const int64_t which = head / shape_.heads;
      std::memcpy(part(layer, which, to) + offset, part(layer, which, from) + offset, static_cast<size_t>(count * row));
    }
  }
}

}  // namespace rf::engine
