// The statistics that verdicts rest on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rf::reproduce {

// Over seeds: the mean, the lowest and the highest.
struct Spread {
  double mean = 0, low = 0, high = 0;
};
Spread spread(const std::vector<double>& values);  // at least one
std::string text(const Spread& spread);            // "1.234 (1.200 to 1.260)"; for one value "1.234"

// Student's t with `freedom` degrees of freedom: P(T <= t), and the t of a probability in (0, 1).
double student_t_probability(double t, double freedom);
double student_t_quantile(double probability, double freedom);

// Student's t applied to a sample, such as the differences of paired runs.
struct Estimate {
  double mean = 0, low = 0, high = 0;  // the interval of that confidence; infinite for a single value
  double deviation = 0;                // of the sample, with n - 1
  int64_t count = 0;
  // The probability of a mean so high, or higher, if the true one were `value`: the evidence that it is above.
  double p_above(double value) const;
  double p_below(double value) const;
  bool is_within(double lowest, double highest) const { return low >= lowest && high <= highest; }  // all of it
};
Estimate estimate(const std::vector<double>& values, double confidence);  // at least one value
// "-0.668 [-0.75, -0.59]"; with a unit `scale` times that.
std::string text(const Estimate& estimate, double scale = 1, const std::string& unit = "");

// Holm's step-down correction: the adjusted p of each, in the order given.
std::vector<double> holm(const std::vector<double>& p);

double median(std::vector<double> values);  // at least one; for an even number the mean of the two in the middle
// The slope of the least squares line through (x, y); at least two different x.
double slope(const std::vector<double>& x, const std::vector<double>& y);
// The same through (ln x, ln y): the power with which y grows.
double power(const std::vector<double>& x, const std::vector<double>& y);
// Rank correlation; ties have their average rank.
double spearman(const std::vector<double>& x, const std::vector<double>& y);
// Means of consecutive windows of that many values; an incomplete last one is left out.
std::vector<double> window_means(const std::vector<double>& values, size_t window);

}  // namespace rf::reproduce
