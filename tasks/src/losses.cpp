// Pooling and cross-entropy (losses.h).
#include "losses.h"

#include <algorithm>
#include <cmath>

#include "classes.h"

namespace rf::tasks {

namespace {

// Calls visit(input, first row, number of rows) for each input.
template <typename Visit>
void for_each_input(const Example& example, const Visit& visit) {
  size_t first = 0;
  for (size_t input = 0; input < example.rows_of_input.size(); ++input) {
    const auto count = static_cast<size_t>(example.rows_of_input[input]);
    visit(input, first, count);
    first += count;
  }
}

// NaN if any element is NaN.
double larger(double a, double b) { return a >= b || std::isnan(a) ? a : b; }

}  // namespace

std::vector<Scores> pooled(const Example& example, const Logits& logits, Pooling pooling) {
  std::vector<Scores> of_inputs;
  for_each_input(example, [&](size_t, size_t first, size_t count) {
    Scores& of_input = of_inputs.emplace_back(logits.line(first));
    for (size_t row = first + 1; row < first + count; ++row) {
      const Scores line = logits.line(row);
      for (size_t k = 0; k < line.size(); ++k) {
        of_input[k] = pooling == Pooling::kMean ? of_input[k] + line[k] : larger(of_input[k], line[k]);
      }
    }
    if (pooling != Pooling::kMean) return;
    for (double& logit : of_input) logit /= static_cast<double>(count);
  });
  return of_inputs;
}

std::vector<double> unpooled(const Example& example, const Logits& logits, Pooling pooling,
                             const std::vector<Scores>& gradients) {
  std::vector<double> gradient(logits.values.size());
  for_each_input(example, [&](size_t input, size_t first, size_t count) {
    for (size_t k = 0; k < gradients[input].size(); ++k) {
      const auto at = [&](size_t i) { return logits.index(first + i, k); };
      float largest = logits.values[at(0)];
      for (size_t i = 1; i < count; ++i) largest = std::max(largest, logits.values[at(i)]);
      const auto has_part = [&](size_t i) { return pooling == Pooling::kMean || logits.values[at(i)] == largest; };
      double parts = 0;
      for (size_t i = 0; i < count; ++i) parts += has_part(i) ? 1 : 0;
      for (size_t i = 0; i < count; ++i) gradient[at(i)] = has_part(i) ? gradients[input][k] / parts : 0;
    }
  });
  return gradient;
}

CrossEntropy cross_entropy(std::span<const double> logits, size_t target, double label_smoothing) {
  const auto count = static_cast<double>(logits.size());
  CrossEntropy result{.gradient = softmax(logits)};
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0, mean = 0;
  for (const double logit : logits) {
    sum += std::exp(logit - largest);
    mean += logit / count;
  }
  const double wanted = (1 - label_smoothing) * logits[target] + label_smoothing * mean;
  result.value = largest + std::log(sum) - wanted;
  for (double& derivative : result.gradient) derivative -= label_smoothing / count;
  result.gradient[target] -= 1 - label_smoothing;
  return result;
}

}  // namespace rf::tasks
