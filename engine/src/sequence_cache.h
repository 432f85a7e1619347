// The tokens of a decoder's sequences so far, and the state of attention for them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory.h"
#include "rf/attention.h"

namespace rf::engine {

class SequenceCache {
 public:
  SequenceCache(int64_t sequences, int64_t capacity);
  virtual ~SequenceCache() = default;

  int64_t sequences() const { return std::ssize(ids_); }
  int64_t capacity() const { return capacity_; }  // tokens of a sequence
  std::span<const int32_t> ids(int64_t sequence) const { return ids_[static_cast<size_t>(sequence)]; }
  int64_t length(int64_t sequence) const { return std::ssize(ids_[static_cast<size_t>(sequence)]); }

  void append(int64_t sequence, std::span<const int32_t> ids);
  // Sequence `to` becomes a copy of `from`.
  void copy(int64_t from, int64_t to);
  // Whether the kept state can be cut back to the first `tokens` tokens of a sequence.
  virtual bool can_truncate(int64_t sequence, int64_t tokens) const = 0;
  void truncate(int64_t sequence, int64_t tokens) { ids_[static_cast<size_t>(sequence)].resize(tokens); }

 protected:
  // The tokens before `first` are the same in both sequences.
  virtual void copy_kept(int64_t from, int64_t to, int64_t first) = 0;

  void set_capacity(int64_t tokens);

 private:
  int64_t capacity_ = 0;
  std::vector<std::vector<int32_t>> ids_;
};

// Keys and values of the tokens, layer by layer. They are stored before rotation, and attention rotates them on
// reading. So a token has the same bits as in a call with its whole sequence, for every element type, and always gets
// the present rotation, even if that changes as the sequence grows.
class KeyValueCache : public SequenceCache {
 public:
  struct Shape {
    int64_t layers = 0, heads = 0, head_dim = 0;
    rf_dtype dtype = RF_F32;  // of the rows that are stored
    rf_cache_type type = RF_CACHE_SAME;
    int64_t sequences = 0, capacity = 0;  // tokens of a sequence

    int64_t row() const { return head_dim + (type == RF_CACHE_INT8 ? int64_t{sizeof(float)} : 0); }  // in elements
    int64_t row_bytes() const { return row() * (type == RF_CACHE_INT8 ? 1 : bf16_or_float_bytes()); }

   private:
    int64_t bf16_or_float_bytes() const { return type == RF_CACHE_BF16 || dtype == RF_BF16 ? 2 : 4; }
  };

  // Throws std::bad_alloc. Memory is taken from the system as tokens come.
  explicit KeyValueCache(const Shape& shape);

  const Shape& shape() const { return shape_; }

  // Makes room for more tokens of each sequence, and keeps the present tokens.
  void grow(int64_t capacity);

  rf_cache_type type() const { return shape_.type; }
  // Keys and values of a layer and sequence, [heads, capacity, row].
  char* keys(int64_t layer, int64_t sequence) const { return part(layer, 0, sequence); }
  char* values(int64_t layer, int64_t sequence) const { return part(layer, 1, sequence); }
  int64_t row() const { return shape_.row(); }  // in elements of the cache's type, as are the next two
  int64_t head_stride() const { return shape_.capacity * row(); }
  int64_t sequence_stride() const { return shape_.heads * head_stride(); }

  // Appends rows [tokens, heads, head_dim] of keys and of values, with a stride of row_bytes, to a sequence. They count
  // after `append` of their ids.
  void store(int64_t layer, int64_t sequence, int64_t tokens, const char* keys, const char* values, int64_t row_bytes);

  bool can_truncate(int64_t, int64_t) const override { return true; }

 protected:
  void copy_kept(int64_t from, int64_t to, int64_t first) override;

 private:
  char* part(int64_t layer, int64_t which, int64_t sequence) const;

  Shape shape_;
  AlignedMemory memory_;
};

// Keys and values of the tokens in rows that sequences share: a copy of a sequence lists the same rows. Keys are stored
// after rotation, so it must not change as a sequence grows.
class SharedRows : public SequenceCache {
 public:
  struct Shape {
    int64_t layers = 0, width = 0;  // elements of a key, of all heads
    int64_t element_bytes = 0;
    int64_t sequences = 0;
  };

  // Throws std::bad_alloc.
  explicit SharedRows(const Shape& shape);

  // Lists `tokens` new rows for a sequence, after the rows of its ids; they count after `append` of their ids.
  void add_rows(int64_t sequence, int64_t tokens);
  std::span<const int64_t> rows(int64_t sequence) const { return lists_[static_cast<size_t>(sequence)]; }
  int64_t count() const { return count_; }  // of rows
  // Takes memory for the added rows.
  void reserve();
  // Forgets all rows; no sequence may have tokens.
  void clear() { count_ = 0; }

  // The key of a layer in a row, followed by its value.
  char* at(int64_t layer, int64_t row) const {
    return reinterpret_cast<char*>(memory_[static_cast<size_t>(layer)].get()) + row * row_bytes();
  }

  bool can_truncate(int64_t, int64_t) const override { return true; }

 protected:
  void copy_kept(int64_t from, int64_t to, int64_t first) override;

 private:
  int64_t row_bytes() const { return 2 * shape_.width * shape_.element_bytes; }

  Shape shape_;
  std::vector<std::vector<int64_t>> lists_;  // [sequences]: the row of each token
  int64_t count_ = 0, room_ = 0;             // in rows
  std::vector<AlignedMemory> memory_;        // of each layer
};

// Of one layer, sequence and head.
struct LinearState {
  double* sums = nullptr;     // as in rf_linear_attention_args; nullptr: not kept
  double* maximum = nullptr;  // shen and favor: the sums are divided by its exponential
};

// The state of linear attention: sums over the keys of a sequence, of a size that does not depend on the number of
// tokens. The sums contain keys with the rotation of the time they were added.
class LinearStates : public SequenceCache {
 public:
  struct Shape {
    int64_t layers = 0, heads = 0, sums = 0;  // numbers of a head
    int64_t sequences = 0, capacity = 0;      // tokens of a sequence
  };

  // Throws std::bad_alloc. Memory is taken from the system as sequences begin.
  explicit LinearStates(const Shape& shape);

  LinearState of(int64_t layer, int64_t sequence, int64_t head) const;
  // The states of a sequence before its first token.
  void clear(int64_t sequence);
  // No token can be taken out of a sum.
  bool can_truncate(int64_t sequence, int64_t tokens) const override {
    return tokens == 0 || tokens == length(sequence);
  }

 protected:
  void copy_kept(int64_t from, int64_t to, int64_t first) override;

 private:
  Shape shape_;
  std::unique_ptr<double[]> sums_;    // [layers, sequences, heads, sums]
  std::unique_ptr<double[]> maxima_;  // [layers, sequences, heads]
};

}  // namespace rf::engine
