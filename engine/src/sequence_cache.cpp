// The tokens of growing sequences and their states (see the header).
#include "sequence_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "layers.h"

namespace rf::engine {

SequenceCache::SequenceCache(int64_t sequences, int64_t capacity) : ids_(static_cast<size_t>(sequences)) {
  set_capacity(capacity);
}

void SequenceCache::set_capacity(int64_t capacity) {
  if (capacity > INT64_MAX / int64_t{sizeof(int32_t)}) throw std::bad_alloc();
  for (std::vector<int32_t>& ids : ids_) ids.reserve(static_cast<size_t>(capacity));
  capacity_ = capacity;
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

namespace {

// x and then its scale; NaN is all that a row with a number that is not finite becomes.
void store_int8(std::span<const float> x, char* to) {
  float largest = 0;
  for (const float number : x) largest = std::isfinite(number) ? std::max(largest, std::abs(number)) : INFINITY;
  const bool is_finite = largest <= std::numeric_limits<float>::max();
  const float scale = is_finite ? largest / 127 : std::numeric_limits<float>::quiet_NaN();
  // A subnormal scale has few bits: 127 times the scale may be less than the number.
  const auto rounded = [&](float number) { return std::clamp(std::nearbyint(number / scale), -127.0f, 127.0f); };
  for (size_t i = 0; i < x.size(); ++i) to[i] = static_cast<char>(scale > 0 ? static_cast<int>(rounded(x[i])) : 0);
  std::memcpy(to + x.size(), &scale, sizeof scale);
}

void store_row(const KeyValueCache::Shape& shape, const char* from, std::vector<float>& floats, char* to) {
  if (shape.type == RF_CACHE_SAME || (shape.type == RF_CACHE_BF16 && shape.dtype == RF_BF16)) {
    std::memcpy(to, from, static_cast<size_t>(shape.row_bytes()));
    return;
  }
  floats.resize(static_cast<size_t>(shape.head_dim));
  to_floats(shape.dtype, shape.head_dim, from, floats.data());
  if (shape.type == RF_CACHE_INT8) return store_int8(floats, to);
  from_floats(RF_BF16, shape.head_dim, floats.data(), to);
}

}  // namespace

// Memory is [layers][2][sequences][heads][capacity][row]: attention reads the rows of a head in sequence.
KeyValueCache::KeyValueCache(const Shape& shape) : SequenceCache(shape.sequences, shape.capacity), shape_(shape) {
  int64_t bytes = 2 * shape.row_bytes();
  for (const int64_t extent : {shape.layers, shape.heads, shape.sequences, shape.capacity}) {
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > INT64_MAX - 64) throw std::bad_alloc();
  }
  memory_ = make_aligned(bytes);
}

void KeyValueCache::grow(int64_t capacity) {
  Shape shape = shape_;
  shape.capacity = capacity;
  KeyValueCache grown(shape);
  const int64_t row = shape.row_bytes();
  for (int64_t i = 0; i < sequences(); ++i) {
    const auto bytes = static_cast<size_t>(length(i) * row);
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      for (int64_t head = 0; head < 2 * shape.heads; ++head) {
        const int64_t which = head / shape.heads, of_side = head % shape.heads;
        std::memcpy(grown.part(layer, which, i) + of_side * capacity * row,
                    part(layer, which, i) + of_side * shape_.capacity * row, bytes);
      }
    }
  }
  memory_ = std::move(grown.memory_);
  shape_ = shape;
  set_capacity(capacity);
}

char* KeyValueCache::part(int64_t layer, int64_t which, int64_t sequence) const {
  const int64_t index = (2 * layer + which) * shape_.sequences + sequence;
  return reinterpret_cast<char*>(memory_.get()) + index * shape_.heads * shape_.capacity * shape_.row_bytes();
}

void KeyValueCache::store(int64_t layer, int64_t sequence, int64_t tokens, const char* keys, const char* values,
                          int64_t row_bytes) {
  const int64_t head_bytes = shape_.head_dim * bytes_of(shape_.dtype);
  const auto copy_rows = [&](const char* from, char* to) {
    std::vector<float> floats;
    for (int64_t h = 0; h < shape_.heads; ++h) {
      char* row = to + (h * shape_.capacity + length(sequence)) * shape_.row_bytes();
      for (int64_t t = 0; t < tokens; ++t)
        store_row(shape_, from + t * row_bytes + h * head_bytes, floats, row + t * shape_.row_bytes());
    }
  };
  copy_rows(keys, this->keys(layer, sequence));
  copy_rows(values, this->values(layer, sequence));
}

// Keys and values of a token depend only on the tokens up to it, so the common prefix stays in place.
void KeyValueCache::copy_kept(int64_t from, int64_t to, int64_t first) {
  const int64_t count = length(from) - first, row = shape_.row_bytes();
#pragma omp parallel for schedule(static) if (count > 16)
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    for (int64_t head = 0; head < 2 * shape_.heads; ++head) {
      const int64_t offset = (head % shape_.heads * shape_.capacity + first) * row;
      const int64_t which = head / shape_.heads;
      std::memcpy(part(layer, which, to) + offset, part(layer, which, from) + offset, static_cast<size_t>(count * row));
    }
  }
}

SharedRows::SharedRows(const Shape& shape)
    : SequenceCache(shape.sequences, 0),
      shape_(shape),
      lists_(static_cast<size_t>(shape.sequences)),
      memory_(static_cast<size_t>(shape.layers)) {}

void SharedRows::add_rows(int64_t sequence, int64_t tokens) {
  std::vector<int64_t>& list = lists_[static_cast<size_t>(sequence)];
  list.resize(static_cast<size_t>(length(sequence)));
  for (int64_t t = 0; t < tokens; ++t) list.push_back(count_++);
}

void SharedRows::reserve() {
  if (count_ <= room_) return;
  const int64_t room = std::max(count_, 2 * room_);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(row_bytes(), room, &bytes) || bytes > INT64_MAX - 64) throw std::bad_alloc();
  for (AlignedMemory& memory : memory_) {
    AlignedMemory grown = make_aligned(bytes);
    if (room_ > 0) std::memcpy(grown.get(), memory.get(), static_cast<size_t>(room_ * row_bytes()));
    memory = std::move(grown);
  }
  room_ = room;
}

void SharedRows::copy_kept(int64_t from, int64_t to, int64_t first) {
  const std::vector<int64_t>& source = lists_[static_cast<size_t>(from)];
  std::vector<int64_t>& target = lists_[static_cast<size_t>(to)];
  target.resize(static_cast<size_t>(first));
  target.insert(target.end(), source.begin() + first, source.begin() + length(from));
}

LinearStates::LinearStates(const Shape& shape) : SequenceCache(shape.sequences, shape.capacity), shape_(shape) {
  int64_t bytes = sizeof(double);
  for (const int64_t extent : {shape.layers, shape.heads, shape.sums, shape.sequences}) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) throw std::bad_alloc();
  }
  const auto states = static_cast<size_t>(shape.layers * shape.sequences * shape.heads);
  sums_ = std::make_unique_for_overwrite<double[]>(states * static_cast<size_t>(shape.sums));
  maxima_ = std::make_unique_for_overwrite<double[]>(states);
}

LinearState LinearStates::of(int64_t layer, int64_t sequence, int64_t head) const {
  const int64_t index = (layer * sequences() + sequence) * shape_.heads + head;
  return {sums_.get() + index * shape_.sums, maxima_.get() + index};
}

void LinearStates::clear(int64_t sequence) {
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    const LinearState first = of(layer, sequence, 0);
    std::fill_n(first.sums, shape_.heads * shape_.sums, 0.0);
    std::fill_n(first.maximum, shape_.heads, -std::numeric_limits<double>::infinity());
  }
}

void LinearStates::copy_kept(int64_t from, int64_t to, int64_t) {
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    const LinearState source = of(layer, from, 0), target = of(layer, to, 0);
    std::copy_n(source.sums, shape_.heads * shape_.sums, target.sums);
    std::copy_n(source.maximum, shape_.heads, target.maximum);
  }
}

}  // namespace rf::engine
