// The tokens of growing sequences (see the header).
#include "sequence_cache.h"

#include <algorithm>
#include <new>

namespace rf::engine {

SequenceCache::SequenceCache(int64_t sequences, int64_t capacity)
    : capacity_(capacity), ids_(static_cast<size_t>(sequences)) {
  if (capacity > INT64_MAX / int64_t{sizeof(int32_t)}) throw std::bad_alloc();
  for (std::vector<int32_t>& ids : ids_) ids.reserve(static_cast<size_t>(capacity));
}

void SequenceCache::append(int64_t sequence, std::span<const int32_t> ids) {
  std::vector<int32_t>& own = ids_[static_cast<size_t>(sequence)];
  own.insert(own.end(), ids.begin(), ids.end());
}

void SequenceCache::copy(int64_t from, int64_t to) {
  if (from == to) return;
  const std::vector<int32_t>& source = ids_[static_cast<size_t>(from)];
  std::vector<int32_t>& target = ids_[static_cast<size_t>(to)];
  const auto differ = std::mismatch(source.begin(), source.end(), target.begin(), target.end()).first;
  copy_kept(from, to, differ - source.begin());
  target.assign(source.begin(), source.end());
}

}  // namespace rf::engine
