// Element conversions of the reference loops (see the header).
#include "convert.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace rf::ref {
namespace {

// A small binary format: sign, exponent and fraction bits.
struct Format {
  int exponent_bits;
  int fraction_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int max_exponent_field() const { return (1 << exponent_bits) - 1; }
};

constexpr Format kBfloat16{8, 7};
constexpr Format kFloat16{5, 10};

double decode(Format format, uint16_t bits) {
  const double sign = (bits >> 15) != 0 ? -1 : 1;
  const int exponent = (bits >> format.fraction_bits) & format.max_exponent_field();
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  if (exponent == format.max_exponent_field()) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  const int implicit_one = exponent == 0 ? 0 : 1 << format.fraction_bits;
  const int power = (exponent == 0 ? 1 : exponent) - format.bias() - format.fraction_bits;
  return sign * std::ldexp(implicit_one + fraction, power);
}

uint16_t encode(Format format, double value) {
  const int sign = std::signbit(value) ? 1 << 15 : 0;
  const int infinity = format.max_exponent_field() << format.fraction_bits;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | 1 << (format.fraction_bits - 1));
  if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity);
  if (value == 0) return static_cast<uint16_t>(sign);
  // In units of the last place of its binade (or of the subnormals) the value rounds to an integer. A carry into the
  // next binade, or into infinity, automatically gives the right bit pattern.
  const int exponent = std::max(std::ilogb(value), 1 - format.bias());
  const double units = std::nearbyint(std::ldexp(std::abs(value), format.fraction_bits - exponent));
  if (exponent > format.bias()) return static_cast<uint16_t>(sign | infinity);
  const int field = (exponent + format.bias() - 1) << format.fraction_bits;
  return static_cast<uint16_t>(sign | (field + static_cast<int>(units)));
}

template <class T>
T element(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void set_element(void* data, int64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

}  // namespace

double load(rf_dtype dtype, const void* data, int64_t index) {
  switch (dtype) {
    case RF_F32: return static_cast<double>(element<float>(data, index));
    case RF_F64: return element<double>(data, index);
    case RF_BF16: return decode(kBfloat16, element<uint16_t>(data, index));
    case RF_F16: return decode(kFloat16, element<uint16_t>(data, index));
  }
  return 0;
}

void store(rf_dtype dtype, void* data, int64_t index, double value) {
  switch (dtype) {
    case RF_F32: return set_element(data, index, static_cast<float>(value));
    case RF_F64: return set_element(data, index, value);
    case RF_BF16: return set_element(data, index, encode(kBfloat16, value));
    case RF_F16: return set_element(data, index, encode(kFloat16, value));
  }
}

}  // namespace rf::ref
