// Cosine and sine rows of rotary embedding: angle = position x frequency, formed and reduced so that only the final
// rounding to the element type counts (R-CONV-12).
#pragma once

#include <cstdint>
#include <vector>

#include "rope/double_double.h"

namespace rf::core {

// Largest |position x frequency| accepted; the double-double product still fixes the angle to 1e-13 there.
inline constexpr double kMaxAngle = 0x1p60;

struct CosSin {
  double cos = 1;
  double sin = 0;
};

// Cosine and sine of position x frequency, each within about an ulp (of 1) for |angle| <= 2^31. NaN beyond kMaxAngle: a
// page of the cache may extend beyond the allowed positions.
CosSin cos_sin(double position, DoubleDouble frequency);

// One row: scale cos(position theta_i) and scale sin(position theta_i), i < frequencies.size(), rounded once to T.
template <class T>
void fill_row(const std::vector<DoubleDouble>& frequencies, double scale, double position, T* cos_row, T* sin_row) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const CosSin value = cos_sin(position, frequencies[i]);
    cos_row[i] = static_cast<T>(scale * value.cos);
    sin_row[i] = static_cast<T>(scale * value.sin);
  }
}

}  // namespace rf::core
