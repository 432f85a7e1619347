// Spread, Student's t, Holm's correction, slopes and ranks (statistics.h).
#include "statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
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

// The continued fraction of the incomplete beta function (DLMF 8.17.22) by the modified Lentz algorithm; it converges
// fast for x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  constexpr int kMaxTerms = 500;
  const auto not_zero = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1, d = 1 / not_zero(1 - (a + b) * x / (a + 1)), fraction = d;
  for (int m = 1; m <= kMaxTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double factor = 1;
    for (const double coefficient : {even, odd}) {
      d = 1 / not_zero(1 + coefficient * d);
      c = not_zero(1 + coefficient / c);
      factor = c * d;
      fraction *= factor;
    }
    if (std::abs(factor - 1) < std::numeric_limits<double>::epsilon()) break;
  }
  return fraction;
}

// I_x(a, b) (DLMF 8.17.2).
double incomplete_beta(double a, double b, double x) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - incomplete_beta(b, a, 1 - x);
  const double front =
      std::exp(a * std::log(x) + b * std::log1p(-x) + std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b));
  return front * beta_fraction(a, b, x) / a;
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

double student_t_probability(double t, double freedom) {
  const double tail = 0.5 * incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t));
  return t > 0 ? 1 - tail : tail;
}

// By bisection in the tail below 0, in which probabilities keep their digits.
double student_t_quantile(double probability, double freedom) {
  if (probability > 0.5) return -student_t_quantile(1 - probability, freedom);
  double low = -1, high = 0;
  while (student_t_probability(low, freedom) > probability) low *= 2;
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = 0.5 * (low + high);
    if (middle == low || middle == high) break;
    (student_t_probability(middle, freedom) > probability ? high : low) = middle;
  }
  return high;
}

double Estimate::p_above(double value) const {
  const double error = deviation / std::sqrt(static_cast<double>(count));
  if (count < 2) return 1;
  if (error == 0) return mean > value ? 0 : 1;
  return student_t_probability((value - mean) / error, static_cast<double>(count - 1));
}

double Estimate::p_below(double value) const {
  const Estimate mirrored{.mean = -mean, .deviation = deviation, .count = count};
  return mirrored.p_above(-value);
}

Estimate estimate(const std::vector<double>& values, double confidence) {
  Estimate found{.mean = mean(values), .count = std::ssize(values)};
  if (found.count < 2) {
    found.low = -std::numeric_limits<double>::infinity();
    found.high = -found.low;
    return found;
  }
  const double freedom = static_cast<double>(found.count - 1);
  found.deviation = std::sqrt(covariance(values, values) / freedom);
  const double reach =
      student_t_quantile(0.5 + confidence / 2, freedom) * found.deviation / std::sqrt(static_cast<double>(found.count));
  found.low = found.mean - reach;
  found.high = found.mean + reach;
  return found;
}

std::string text(const Estimate& estimate, double scale, const std::string& unit) {
  const std::string of = unit.empty() ? "" : " " + unit;
  if (estimate.count < 2) return fmt::format("{:.4g}{}, without an interval", scale * estimate.mean, of);
  return fmt::format("{:.4g} [{:.4g}, {:.4g}]{}", scale * estimate.mean, scale * estimate.low, scale * estimate.high,
                     of);
}

std::vector<double> holm(const std::vector<double>& p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<double> adjusted(p.size());
  double highest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    highest = std::max(highest, std::min(1.0, static_cast<double>(p.size() - i) * p[order[i]]));
    adjusted[order[i]] = highest;
  }
  return adjusted;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
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
