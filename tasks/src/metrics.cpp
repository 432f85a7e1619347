// Metrics of classes and numbers (rf/tasks/metrics.h).
#include "rf/tasks/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

namespace rf::tasks {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double ratio_or_zero(double numerator, double denominator) { return denominator == 0 ? 0 : numerator / denominator; }

// Ranks from 1; equal numbers get their mean rank.
std::vector<double> ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + end + 1) / 2;
  }
  return ranks;
}

// Gorodkin's R_K: the covariance of gold and predicted classes divided by the root of the product of their variances.
double matthews_correlation(const std::vector<double>& gold, const std::vector<double>& predicted, double right,
                            double all) {
  double products = 0, gold_squares = 0, predicted_squares = 0;
  for (size_t k = 0; k < gold.size(); ++k) {
    products += gold[k] * predicted[k];
    gold_squares += gold[k] * gold[k];
    predicted_squares += predicted[k] * predicted[k];
  }
  return ratio_or_zero(right * all - products,
                       std::sqrt(all * all - gold_squares) * std::sqrt(all * all - predicted_squares));
}

}  // namespace

std::vector<std::vector<int64_t>> confusion_matrix(std::span<const int64_t> gold, std::span<const int64_t> predicted,
                                                   int64_t classes) {
  const auto size = static_cast<size_t>(classes);
  std::vector<std::vector<int64_t>> counts(size, std::vector<int64_t>(size, 0));
  for (size_t i = 0; i < gold.size(); ++i) {
    ++counts[static_cast<size_t>(gold[i])][static_cast<size_t>(predicted[i])];
  }
  return counts;
}

ClassMetrics class_metrics(const std::vector<std::vector<int64_t>>& confusion) {
  const size_t classes = confusion.size();
  std::vector<double> gold(classes, 0), predicted(classes, 0);
  double right = 0, all = 0;
  for (size_t i = 0; i < classes; ++i) {
    for (size_t j = 0; j < classes; ++j) {
      const auto count = static_cast<double>(confusion[i][j]);
      gold[i] += count;
      predicted[j] += count;
      all += count;
      if (i == j) right += count;
    }
  }
  if (all == 0) return {kNone, kNone, kNone, kNone};
  ClassMetrics metrics;
  metrics.accuracy = right / all;
  double sum = 0, seen = 0;
  for (size_t k = 0; k < classes; ++k) {
    const double f1 = ratio_or_zero(2 * static_cast<double>(confusion[k][k]), gold[k] + predicted[k]);
    if (k == 1) metrics.f1 = f1;
    if (gold[k] + predicted[k] == 0) continue;
    sum += f1;
    ++seen;
  }
  metrics.macro_f1 = sum / seen;
  metrics.matthews = matthews_correlation(gold, predicted, right, all);
  return metrics;
}

double pearson(std::span<const double> gold, std::span<const double> predicted) {
  if (gold.size() < 2) return kNone;
  const auto count = static_cast<double>(gold.size());
  const double gold_mean = std::accumulate(gold.begin(), gold.end(), 0.0) / count;
  const double predicted_mean = std::accumulate(predicted.begin(), predicted.end(), 0.0) / count;
  double products = 0, gold_squares = 0, predicted_squares = 0;
  for (size_t i = 0; i < gold.size(); ++i) {
    const double x = gold[i] - gold_mean, y = predicted[i] - predicted_mean;
    products += x * y;
    gold_squares += x * x;
    predicted_squares += y * y;
  }
  const auto all_equal = [](std::span<const double> values) {
    return std::all_of(values.begin(), values.end(), [&](double value) { return value == values.front(); });
  };
  if (all_equal(gold) || all_equal(predicted)) return kNone;  // exact test, because the sums may be only nearly 0
  return std::clamp(products / (std::sqrt(gold_squares) * std::sqrt(predicted_squares)), -1.0, 1.0);
}

double spearman(std::span<const double> gold, std::span<const double> predicted) {
  return pearson(ranks(gold), ranks(predicted));
}

double mean_squared_error(std::span<const double> gold, std::span<const double> predicted) {
  double sum = 0;
  for (size_t i = 0; i < gold.size(); ++i) sum += (gold[i] - predicted[i]) * (gold[i] - predicted[i]);
  return gold.empty() ? kNone : sum / static_cast<double>(gold.size());
}

nlohmann::json number_or_null(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(); }

}  // namespace rf::tasks
