// Loss curves (curves.h).
#include "curves.h"

#include <cstddef>
#include <cstdint>

namespace rf::reproduce {

namespace {

constexpr size_t kSmoothed = 5;  // compared losses are means of this many

double mean_of_last(const Curve& curve, size_t end) {
  const size_t begin = end > kSmoothed ? end - kSmoothed : 0;
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += curve.losses[i];
  return sum / static_cast<double>(end - begin);
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

double steps_to_end_of(const Curve& curve, const Curve& other) {
  const double goal = mean_of_last(other, other.losses.size());
  for (size_t end = kSmoothed; end <= curve.losses.size(); ++end) {
    if (mean_of_last(curve, end) <= goal) return curve.steps[end - 1];
  }
  return curve.steps.back() + 1;
}

}  // namespace rf::reproduce
