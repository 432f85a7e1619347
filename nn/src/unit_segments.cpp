// Slopes, offsets and gradients of the pieces (interpolated_bias.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "interpolated_bias.h"

namespace rf::nn {

namespace {

// Each number becomes the sum over the segments up to its own, or from its own to the last.
void accumulate_forward(std::span<double> numbers) {
  std::partial_sum(numbers.begin(), numbers.end(), numbers.begin());
}
void accumulate_backward(std::span<double> numbers) {
  std::partial_sum(numbers.rbegin(), numbers.rend(), numbers.rbegin());
}

}  // namespace

UnitSegments::UnitSegments(const double* u, const double* t, const double* v, int64_t heads, int64_t units)
    : heads_(heads), v_(v, v + heads * units) {
  const auto bends = [&](int64_t w) { return std::isfinite(u[w]) && std::isfinite(t[w]) && u[w] != 0; };
  for (int64_t w = 0; w < units; ++w) {
    if (bends(w)) breakpoints_.push_back(-t[w] / u[w]);
  }
  std::sort(breakpoints_.begin(), breakpoints_.end());
  breakpoints_.erase(std::unique(breakpoints_.begin(), breakpoints_.end()), breakpoints_.end());
  for (int64_t w = 0; w < units; ++w) {
    Unit unit = {u[w], t[w], t[w] <= 0 && u[w] == 0 ? Active::kNever : Active::kAlways, 0};
    if (bends(w)) {
      const auto at = std::lower_bound(breakpoints_.begin(), breakpoints_.end(), -t[w] / u[w]);
      const int64_t breakpoint = at - breakpoints_.begin();
      unit.active = u[w] > 0 ? Active::kFrom : Active::kUpTo;
      unit.segment = u[w] > 0 ? 2 * breakpoint + 2 : 2 * breakpoint;
    }
    units_.push_back(unit);
  }
  const int64_t count = segments();
  slopes_.resize(heads * count);
  offsets_.resize(heads * count);
  for (int64_t h = 0; h < heads; ++h) {
    const std::span<double> slopes(&slopes_[h * count], count), offsets(&offsets_[h * count], count);
    std::vector<double> falling_slopes(count), falling_offsets(count);
    for (int64_t w = 0; w < units; ++w) {
      const Unit& unit = units_[w];
      const double weight = v[h * units + w];
      if (!std::isfinite(unit.u) || !std::isfinite(unit.t) || !std::isfinite(weight)) {
        offsets[0] = std::numeric_limits<double>::quiet_NaN();
      } else if (unit.active == Active::kUpTo) {
        falling_slopes[unit.segment] += weight * unit.u;
        falling_offsets[unit.segment] += weight * unit.t;
      } else if (unit.active != Active::kNever) {
        slopes[unit.segment] += weight * unit.u;
        offsets[unit.segment] += weight * unit.t;
      }
    }
    accumulate_forward(slopes);
    accumulate_forward(offsets);
    accumulate_backward(falling_slopes);
    accumulate_backward(falling_offsets);
    for (int64_t s = 0; s < count; ++s) {
      slopes[s] += falling_slopes[s];
      offsets[s] += falling_offsets[s];
    }
  }
}

UnitSegments::Gradients UnitSegments::gradients(std::vector<double> sums, std::vector<double> sums_x) const {
  const int64_t count = segments();
  const auto units = static_cast<int64_t>(units_.size());
  Gradients grads = {std::vector<double>(units), std::vector<double>(units), std::vector<double>(heads_ * units)};
  for (int64_t h = 0; h < heads_; ++h) {
    const std::span<double> from(&sums[h * count], count), from_x(&sums_x[h * count], count);
    std::vector<double> up_to(from.begin(), from.end()), up_to_x(from_x.begin(), from_x.end());
    accumulate_backward(from);
    accumulate_backward(from_x);
    accumulate_forward(up_to);
    accumulate_forward(up_to_x);
    for (int64_t w = 0; w < units; ++w) {
      const Unit& unit = units_[w];
      if (unit.active == Active::kNever) continue;
      const bool falls = unit.active == Active::kUpTo;
      const double sum = falls ? up_to[unit.segment] : from[unit.segment];
      const double sum_x = falls ? up_to_x[unit.segment] : from_x[unit.segment];
      grads.u[w] += v_[h * units + w] * sum_x;
      grads.t[w] += v_[h * units + w] * sum;
      grads.v[h * units + w] = unit.u * sum_x + unit.t * sum;
    }
  }
  return grads;
}

}  // namespace rf::nn
