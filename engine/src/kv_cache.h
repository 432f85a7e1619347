// Keys and values of the tokens that sequences have so far, layer by layer. They are stored before rotation, and
// attention rotates them on reading. So a token has the same bits as in a call with its whole sequence, for every
// element type, and always gets the present rotation, even if that changes as the sequence grows.
#pragma once

#include <cstdint>
#include <memory>

#include "sequence_cache.h"

namespace rf::engine {

class KeyValueCache : public SequenceCache {
 public:
  struct Shape {
    int64_t layers = 0, heads = 0, head_dim = 0;
    int64_t element_bytes = 0;
    int64_t sequences = 0, capacity = 0;  // tokens of a sequence
  };

  // Throws std::bad_alloc. Memory is taken from the system as tokens come.
  explicit KeyValueCache(const Shape& shape);

  // Keys and values of a layer and sequence, [heads, capacity, head_dim].
  char* keys(int64_t layer, int64_t sequence) const { return part(layer, 0, sequence); }
  char* values(int64_t layer, int64_t sequence) const { return part(layer, 1, sequence); }
  int64_t head_stride() const { return shape_.capacity * shape_.head_dim; }  // in elements, as is the next
  int64_t sequence_stride() const { return shape_.heads * head_stride(); }

  // Appends rows [tokens, heads, head_dim] of keys and of values, with a stride of row_bytes, to a sequence. They count
  // after `append` of their ids.
  void store(int64_t layer, int64_t sequence, int64_t tokens, const char* keys, const char* values, int64_t row_bytes);

  bool can_truncate(int64_t, int64_t) const override { return true; }

 protected:
  void copy_kept(int64_t from, int64_t to, int64_t first) override;

 private:
  struct Free {
    void operator()(void* memory) const;
  };

  char* part(int64_t layer, int64_t which, int64_t sequence) const;

  Shape shape_;
  std::unique_ptr<char, Free> memory_;
};

}  // namespace rf::engine
