// Similarity of vectors (rf/engine/similarity.h).
#include "rf/engine/similarity.h"

#include <cmath>
#include <cstddef>

namespace rf::engine {

namespace {

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

template <typename Norm>
double sum_of_differences(std::span<const float> a, std::span<const float> b, const Norm& norm) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += norm(static_cast<double>(a[i]) - b[i]);
  return sum;
}

}  // namespace

double similarity(Similarity function, std::span<const float> a, std::span<const float> b) {
  switch (function) {
    case Similarity::kDot: return dot(a, b);
    case Similarity::kEuclidean: return -std::sqrt(sum_of_differences(a, b, [](double x) { return x * x; }));
    case Similarity::kManhattan: return -sum_of_differences(a, b, [](double x) { return std::abs(x); });
    case Similarity::kCosine: break;
  }
  const double lengths = std::sqrt(dot(a, a)) * std::sqrt(dot(b, b));
  return lengths > 0 ? dot(a, b) / lengths : 0;
}

}  // namespace rf::engine
