// Single elements of the four types: read as the type of the arithmetic, rounded back to nearest even. The kernels use
// them for the rest of a row after its last whole vector.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace rf::core {

// Streaming stores bypass the caches, for results that, with their input, exceed the last-level cache.
enum class Stores { kPlain, kStreaming };

// Memory of one element; arithmetic is in float.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

template <class T>
struct ArithmeticOf {
  using type = float;
};
template <>
struct ArithmeticOf<double> {
  using type = double;
};
// The type of arithmetic on T and of its table rows.
template <class T>
using Arithmetic = typename ArithmeticOf<T>::type;

inline float to_arithmetic(float value) { return value; }
inline double to_arithmetic(double value) { return value; }
inline float to_arithmetic(BFloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

inline float to_arithmetic(Float16 value) {
  const uint32_t sign = uint32_t{value.bits & 0x8000u} << 16;
  const uint32_t magnitude = value.bits & 0x7FFFu;
  if (magnitude >= 0x7C00) {  // infinity and NaN, quieted
    const uint32_t fraction = (magnitude & 0x3FFu) << 13;
    return std::bit_cast<float>(sign | 0x7F800000u | fraction | (fraction != 0 ? 0x00400000u : 0u));
  }
  // The fields moved to their places in a float are the value times 2^-112, subnormals included.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

template <class T>
T from_arithmetic(Arithmetic<T> value) {
  return value;
}

template <>
inline BFloat16 from_arithmetic<BFloat16>(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return {static_cast<uint16_t>((bits | 0x00400000u) >> 16)};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

template <>
inline Float16 from_arithmetic<Float16>(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const auto with_sign = [sign](uint32_t half) { return Float16{static_cast<uint16_t>(sign | half)}; };
  if (magnitude > 0x7F800000u) return with_sign(0x7E00u | ((magnitude >> 13) & 0x3FFu));  // NaN
  if (magnitude >= 0x477FF000u) return with_sign(0x7C00u);                                // rounds to 2^16 or more
  if (magnitude < 0x38800000u) {
    // Below 2^-14 the unit is 2^-24, which is the unit of a float next to 1/2: the addition rounds.
    return with_sign(std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u);
  }
  // Exponent bias 127 -> 15, then 13 bits are rounded away; a carry into the exponent gives the correct result.
  const uint32_t rebased = magnitude - (uint32_t{112} << 23);
  return with_sign((rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13);
}

}  // namespace rf::core
