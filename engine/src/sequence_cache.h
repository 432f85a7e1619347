// The tokens of a decoder's sequences so far, and the state of attention for them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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
  // Sequence `to` becomes what `from` is.
  void copy(int64_t from, int64_t to);
  // Whether what is kept can go back to the first tokens of a sequence.
  virtual bool can_truncate(int64_t sequence, int64_t tokens) const = 0;
  void truncate(int64_t sequence, int64_t tokens) { ids_[static_cast<size_t>(sequence)].resize(tokens); }

 protected:
  // The tokens before `first` are the same in both sequences.
  virtual void copy_kept(int64_t from, int64_t to, int64_t first) = 0;

 private:
  int64_t capacity_;
  std::vector<std::vector<int32_t>> ids_;
};

}  // namespace rf::engine
