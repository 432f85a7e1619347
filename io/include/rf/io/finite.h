// Numbers that a model computed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "rf/io/error.h"

namespace rf::io {

// Throws Error for the first row with NaN, infinity, or a number beyond `largest`. place(row): the origin of the row,
// for example "a.txt line 3". name(row): its name, for example "the vector".
template <typename Place, typename Name>
void check_finite(std::span<const float> values, int64_t columns, const Place& place, const Name& name,
                  float largest = std::numeric_limits<float>::max()) {
  const auto bad = std::find_if(values.begin(), values.end(), [&](float x) { return !(std::abs(x) <= largest); });
  if (bad == values.end()) return;
  const auto row = static_cast<int64_t>(bad - values.begin()) / columns;
  if (std::isfinite(*bad)) fail(place(row), "{} must have numbers within {:g}, got {:g}", name(row), largest, *bad);
  fail(place(row), "{} must be finite, got {}: numbers in the model become too large", name(row), *bad);
}

}  // namespace rf::io
