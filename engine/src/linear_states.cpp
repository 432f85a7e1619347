// Sums of linear attention (see the header).
#include "linear_states.h"

#include <algorithm>
#include <limits>
#include <new>

namespace rf::engine {

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
