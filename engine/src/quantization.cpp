// Vectors of bytes and bits (rf/engine/quantization.h).
#include "rf/engine/quantization.h"

#include <algorithm>
#include <cmath>

#include "rf/io/error.h"

namespace rf::engine {

int64_t quantized_size(Quantization kind, int64_t dimensions) {
  return kind == Quantization::kBinary || kind == Quantization::kUbinary ? (dimensions + 7) / 8 : dimensions;
}

ElementRanges::ElementRanges(std::vector<float> low, std::vector<float> high)
    : low_(std::move(low)), high_(std::move(high)) {
  if (low_.size() != high_.size())
    fail("quantize", "ranges must have as many least as greatest values, got {} and {}", low_.size(), high_.size());
  for (size_t i = 0; i < low_.size(); ++i) {
    if (!(std::isfinite(low_[i]) && std::isfinite(high_[i]) && low_[i] <= high_[i]))
      fail("quantize", "a range must have a least and a greatest value, got {} and {} at {}", low_[i], high_[i], i);
  }
}

void ElementRanges::add(std::span<const float> vector) {
  if (low_.empty()) {
    low_.assign(vector.begin(), vector.end());
    high_ = low_;
    return;
  }
  for (size_t i = 0; i < vector.size(); ++i) {
    low_[i] = std::min(low_[i], vector[i]);
    high_[i] = std::max(high_[i], vector[i]);
  }
}

Quantizer::Quantizer(Quantization kind, const ElementRanges& ranges) : kind_(kind), starts_(ranges.low_) {
  for (size_t i = 0; i < starts_.size(); ++i) {
    const float step = (ranges.high_[i] - starts_[i]) / 255;
    steps_.push_back(step == 0 ? 1 : step);
  }
}

void Quantizer::operator()(std::span<const float> vector, std::byte* out) const {
  constexpr std::byte kHalf{128};
  const std::byte offset = is_signed(kind_) ? kHalf : std::byte{0};
  if (!needs_ranges(kind_)) {
    std::fill_n(out, quantized_size(kind_, std::ssize(vector)), offset);
    for (size_t i = 0; i < vector.size(); ++i) {
      if (vector[i] > 0) out[i / 8] ^= std::byte{128} >> (i % 8);
    }
    return;
  }
  for (size_t i = 0; i < vector.size(); ++i) {
    const float level = std::clamp(std::floor((vector[i] - starts_[i]) / steps_[i]), 0.0F, 255.0F);
    out[i] = static_cast<std::byte>(static_cast<uint8_t>(level)) ^ offset;
  }
}

}  // namespace rf::engine
