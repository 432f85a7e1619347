// Feature maps of linear attention (see the header).
#include "feature_map.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rf::engine {

namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

void softmax_of(const float* x, int64_t count, float* y) {
  const float largest = *std::max_element(x, x + count);
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += y[i] = std::exp(x[i] - largest);
  for (int64_t i = 0; i < count; ++i) y[i] /= sum;
}

// x / |x|, and a 1 behind it. A vector of zeros stays one.
void cosine(const float* x, int64_t count, float* y) {
  constexpr float kMinNorm = 1e-12f;
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += x[i] * x[i];
  const float norm = std::max(std::sqrt(sum), kMinNorm);
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] / norm;
  y[count] = 1;
}

bool is_left(const uint8_t* mask, int64_t t) { return mask == nullptr || mask[t] != 0; }

}  // namespace

float FeatureMapper::project(const float* x, float* products) const {
  const auto root = static_cast<float>(std::sqrt(scale));
  std::fill_n(products, sizes.features, 0.0f);
  float half_norm = 0;
  for (int64_t d = 0; d < sizes.head_dim; ++d) {
    const float value = x[d] * root;
    half_norm += value * value / 2;
    const float* row = projection + d * sizes.features;
    for (int64_t j = 0; j < sizes.features; ++j) products[j] += value * row[j];
  }
  return half_norm;
}

void FeatureMapper::map_queries(HeadVectors<const float> q, HeadVectors<float> f) const {
  const auto eps = static_cast<float>(config.feature_eps);
  const float root = std::sqrt(static_cast<float>(sizes.features));
  for (int64_t t = 0; t < sizes.tokens; ++t) {
    const float* x = q.row(t);
    float* y = f.row(t);
    switch (config.feature_map) {
      case FeatureMap::kElu: break;  // inside the kernel
      case FeatureMap::kShenOriginal:
      case FeatureMap::kShen: softmax_of(x, sizes.head_dim, y); break;
      case FeatureMap::kFavor: {
        const float half_norm = project(x, y), largest = *std::max_element(y, y + sizes.features);
        for (int64_t j = 0; j < sizes.features; ++j) y[j] = (std::exp(y[j] - half_norm - largest) + eps) / root;
        break;
      }
      case FeatureMap::kRelu:
        project(x, y);
        for (int64_t j = 0; j < sizes.features; ++j) y[j] = std::max(y[j], 0.0f) + eps;
        break;
      case FeatureMap::kCosine: cosine(x, sizes.head_dim, y); break;
    }
  }
}

void FeatureMapper::map_keys(HeadVectors<const float> k, const uint8_t* mask, HeadVectors<float> g,
                             const RunningMaximum* running) const {
  switch (config.feature_map) {
    case FeatureMap::kShenOriginal: return map_softmax_of_keys(k, mask, g);
    case FeatureMap::kShen:
    case FeatureMap::kFavor: return map_exponentials(k, mask, g, running);
    case FeatureMap::kElu:
    case FeatureMap::kRelu:
    case FeatureMap::kCosine: return map_queries(k, g);  // f = g
  }
}

// y: the exponents of a key's features; the result is their maximum, for favor without the norm.
float FeatureMapper::exponents(const float* x, float* y) const {
  const bool favor = config.feature_map == FeatureMap::kFavor;
  float half_norm = 0;
  if (favor) {
    half_norm = project(x, y);
  } else {
    std::copy_n(x, sizes.head_dim, y);
  }
  const float largest = *std::max_element(y, y + sizes.features);
  for (int64_t j = 0; j < sizes.features; ++j) y[j] -= half_norm;
  return largest;
}

void FeatureMapper::map_exponentials(HeadVectors<const float> k, const uint8_t* mask, HeadVectors<float> g,
                                     const RunningMaximum* running) const {
  float largest = running == nullptr ? kLowest : running->earlier;
  for (int64_t t = 0; t < sizes.tokens; ++t) {
    if (is_left(mask, t)) largest = std::max(largest, exponents(k.row(t), g.row(t)));
    if (running != nullptr) *running->of_keys.row(t) = largest;
  }
  const bool favor = config.feature_map == FeatureMap::kFavor;
  const auto eps = static_cast<float>(config.feature_eps);
  const float root = std::sqrt(static_cast<float>(sizes.features));
  for (int64_t t = 0; t < sizes.tokens; ++t) {
    if (!is_left(mask, t)) continue;
    float* y = g.row(t);
    const float maximum = running == nullptr ? largest : *running->of_keys.row(t);
    for (int64_t j = 0; j < sizes.features; ++j) {
      const float exponential = std::exp(y[j] - maximum);
      y[j] = favor ? (exponential + eps) / root : exponential;
    }
  }
}

void FeatureMapper::map_softmax_of_keys(HeadVectors<const float> k, const uint8_t* mask, HeadVectors<float> g) const {
  for (int64_t d = 0; d < sizes.head_dim; ++d) {
    float largest = kLowest, sum = 0;
    for (int64_t t = 0; t < sizes.tokens; ++t) {
      if (is_left(mask, t)) largest = std::max(largest, k.row(t)[d]);
    }
    for (int64_t t = 0; t < sizes.tokens; ++t) {
      if (is_left(mask, t)) sum += g.row(t)[d] = std::exp(k.row(t)[d] - largest);
    }
    for (int64_t t = 0; t < sizes.tokens; ++t) {
      if (is_left(mask, t)) g.row(t)[d] /= sum;
    }
  }
}

}  // namespace rf::engine
