// Similarities of vectors (rf/engine/embedder.h).
#include <algorithm>
#include <cmath>
#include <limits>

#include "rf/engine/embedder.h"

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

double max_similarity(const EmbedderInfo& model, std::span<const float> query, std::span<const float> document) {
  constexpr double kEmptyDocument = -1e9;
  const auto width = static_cast<size_t>(model.token_dimensions);
  double sum = 0;
  for (size_t q = 0; q < query.size(); q += width) {
    double best = -std::numeric_limits<double>::infinity();
    for (size_t d = 0; d < document.size(); d += width)
      best = std::max(best, dot(query.subspan(q, width), document.subspan(d, width)));
    sum += best;
  }
  if (document.empty()) sum = kEmptyDocument;
  return model.mean_of_maxima ? sum / static_cast<double>(std::max<size_t>(1, query.size() / width)) : sum;
}

SparseVector sparse_of(std::span<const float> weights, int64_t max_active) {
  SparseVector out;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] != 0) out.indices.push_back(static_cast<int32_t>(i));
  }
  const auto most = static_cast<size_t>(max_active);
  if (max_active > 0 && out.indices.size() > most) {
    const auto is_before = [&](int32_t a, int32_t b) {
      const float x = std::abs(weights[a]), y = std::abs(weights[b]);
      return x != y ? x > y : a < b;
    };
    std::ranges::nth_element(out.indices, out.indices.begin() + max_active, is_before);
    out.indices.resize(most);
    std::ranges::sort(out.indices);
  }
  for (const int32_t i : out.indices) out.values.push_back(weights[i]);
  return out;
}

}  // namespace rf::engine
