// The statistics that verdicts rest on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace rf::reproduce {

// Over seeds: the mean, the lowest and the highest.
struct Spread {
  double mean = 0, low = 0, high = 0;
  double range() const { return high - low; }
};
Spread spread(const std::vector<double>& values);  // at least one
std::string text(const Spread& spread);            // "1.234 (1.200 to 1.260)"; for one value "1.234"

double median(std::vector<double> values);  // at least one; for an even number the upper of the two in the middle
// The slope of the least squares line through (x, y); at least two different x.
double slope(const std::vector<double>& x, const std::vector<double>& y);
// The same through (ln x, ln y): the power with which y grows.
double power(const std::vector<double>& x, const std::vector<double>& y);
// Rank correlation; ties have their average rank.
double spearman(const std::vector<double>& x, const std::vector<double>& y);
// Means of consecutive windows of that many values; an incomplete last one is left out.
std::vector<double> window_means(const std::vector<double>& values, size_t window);

}  // namespace rf::reproduce
