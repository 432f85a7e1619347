// Element types of weights and activations, one element at a time. bfloat16 is rounded to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>

#include "rf/io/half.h"

namespace rf::engine {

using io::float_of_half;

inline float float_of_bf16(uint16_t x) {
  return std::bit_cast<float>(uint32_t{x} << 16);
}

inline uint16_t bf16_of_float(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>((bits >> 16) | 0x40);  // NaN stays one
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// Floats without initial values.
using Floats = std::unique_ptr<float[]>;
inline Floats make_floats(int64_t count) {
  return std::make_unique_for_overwrite<float[]>(static_cast<size_t>(count));
}

}  // namespace rf::engine
