// Spread, slopes and ranks (statistics.h).
#include "statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rf::reproduce {

namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> rank(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) rank[order[i]] = 0.5 * static_cast<double>(begin + end - 1);
  }
  return rank;
}

double covariance(const std::vector<double>& x, const std::vector<double>& y) {
  const double mean_x = mean(x), mean_y = mean(y);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - mean_x) * (y[i] - mean_y);
  return sum;
}

std::vector<double> logarithms(std::vector<double> values) {
  for (double& value : values) value = std::log(value);
  return values;
}

}  // namespace

Spread spread(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {mean(values), *low, *high};
}

std::string text(const Spread& spread) {
  if (spread.low == spread.high) return fmt::format("{:.4g}", spread.mean);
  return fmt::format("{:.4g} ({:.4g} to {:.4g})", spread.mean, spread.low, spread.high);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double slope(const std::vector<double>& x, const std::vector<double>& y) {
  return covariance(x, y) / covariance(x, x);
}

double power(const std::vector<double>& x, const std::vector<double>& y) {
  return slope(logarithms(x), logarithms(y));
}

double spearman(const std::vector<double>& x, const std::vector<double>& y) {
  const std::vector<double> a = ranks(x), b = ranks(y);
  return covariance(a, b) / std::sqrt(covariance(a, a) * covariance(b, b));
}

std::vector<double> window_means(const std::vector<double>& values, size_t window) {
  std::vector<double> means;
  for (size_t begin = 0; begin + window <= values.size(); begin += window) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
    means.push_back(mean({first, first + static_cast<std::ptrdiff_t>(window)}));
  }
  return means;
}

}  // namespace rf::reproduce
