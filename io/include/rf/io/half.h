// Floating types: IEEE 754 half precision and bfloat16, and elements of any type as float32.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "rf/io/dtype.h"

namespace rf::io {

inline float float_of_half(uint16_t x) {
  const uint32_t sign = uint32_t{x & 0x8000u} << 16, magnitude = x & 0x7FFFu;
  if (magnitude >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000 | (magnitude & 0x3FF) << 13);
  if (magnitude >= 0x400) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return sign != 0 ? -value : value;
}

inline constexpr float kLargestHalf = 65504;

// To nearest, ties to even; infinity above the range.
inline uint16_t half_of_float(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00);   // not a number
  if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // rounds to 65536 or more
  if (magnitude < 0x38800000) {                                              // below 2^-14: multiples of 2^-24
    const auto units = static_cast<uint32_t>(std::nearbyint(std::bit_cast<float>(magnitude) * 0x1p24f));
    return static_cast<uint16_t>(sign | units);
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (rounded - (112u << 23)) >> 13);
}

inline float float_of_bf16(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }

// To nearest, ties to even.
inline uint16_t bf16_of_float(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>((bits >> 16) | 0x40);  // NaN stays NaN
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

inline bool is_floating(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

// `count` elements of a floating type as float32; `from` need not be aligned.
inline void read_floats(DType dtype, const std::byte* from, int64_t count, float* to) {
  const auto convert = [&]<typename Element>(Element, const auto& to_float) {
    for (int64_t i = 0; i < count; ++i) {
      Element element;
      std::memcpy(&element, from + i * static_cast<int64_t>(sizeof(Element)), sizeof(Element));
      to[i] = to_float(element);
    }
  };
  switch (dtype) {
    case DType::kF32: std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float)); return;
    case DType::kBF16: return convert(uint16_t{}, float_of_bf16);
    case DType::kF16: return convert(uint16_t{}, float_of_half);
    case DType::kF64: return convert(double{}, [](double x) { return static_cast<float>(x); });
    default: throw std::logic_error("read_floats: elements that are not floats");
  }
}

}  // namespace rf::io
