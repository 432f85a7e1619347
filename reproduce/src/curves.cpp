// Loss curves (curves.h).
#include "curves.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace rf::reproduce {

namespace {

constexpr size_t kFewest = 5, kParts = 20;  // points of a mean, and the part of the run that it is over

Curve smoothed(const Curve& curve) {
  const size_t points = std::min(std::max(kFewest, curve.losses.size() / kParts), curve.losses.size());
  Curve means;
  for (size_t end = points; end <= curve.losses.size(); ++end) {
    double sum = 0;
    for (size_t i = end - points; i < end; ++i) sum += curve.losses[i];
    means.steps.push_back(curve.steps[end - 1]);
    means.losses.push_back(sum / static_cast<double>(points));
  }
  return means;
}

// The first step from which on no loss is above the goal; the last is not.
double steps_to(const Curve& curve, double goal) {
  size_t first = curve.losses.size() - 1;
  while (first > 0 && curve.losses[first - 1] <= goal) --first;
  return curve.steps[first];
}

}  // namespace

double late_mean(const Curve& curve) {
  double sum = 0;
  int64_t counted = 0;
  for (size_t i = 0; i < curve.steps.size(); ++i) {
    if (curve.steps[i] <= curve.steps.back() / 3) continue;
    sum += curve.losses[i];
    ++counted;
  }
  return sum / static_cast<double>(counted);
}

double steps_ratio(const Curve& curve, const Curve& other) {
  const Curve own = smoothed(curve), its = smoothed(other);
  const double goal = std::max(own.losses.back(), its.losses.back());
  return steps_to(own, goal) / steps_to(its, goal);
}

}  // namespace rf::reproduce
