// Half precision against the compiler's own conversions: all halves, and floats around every boundary.
#include "rf/io/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rf::io {
namespace {

float float_of(uint16_t half) { return static_cast<float>(std::bit_cast<_Float16>(half)); }

void expect_half(float x) {
  const auto theirs = std::bit_cast<uint16_t>(static_cast<_Float16>(x));
  if (std::isnan(x)) {
    EXPECT_TRUE(std::isnan(float_of(half_of_float(x))));
  } else {
    EXPECT_EQ(half_of_float(x), theirs) << x;
  }
}

TEST(Half, EveryHalfAndItsNeighbours) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float x = float_of(half);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(float_of_half(half)));
      continue;
    }
    EXPECT_EQ(std::bit_cast<uint32_t>(float_of_half(half)), std::bit_cast<uint32_t>(x));
    EXPECT_EQ(half_of_float(x), half);
    if (std::isinf(x)) continue;
    const float next = float_of(static_cast<uint16_t>(half + 1)), middle = x + (next - x) / 2;
    for (const float y : {x, middle}) {
      for (const float z : {y, std::nextafter(y, 1e9f), std::nextafter(y, -1e9f)}) expect_half(z);
    }
  }
  for (const float x : {65519.9f, 65520.0f, 65536.0f, 1e30f, -1e30f, INFINITY, -INFINITY, NAN, 1e-30f, -1e-8f})
    expect_half(x);
}

}  // namespace
}  // namespace rf::io
