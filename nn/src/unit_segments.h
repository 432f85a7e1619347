// Sums of rectified linear functions of one variable, as linear pieces:
//
//   f_h(x) = sum_w v_hw relu(u_w x + t_w) = slope_hs x + offset_hs     in segment s
//
// The breakpoints -t_w / u_w are the same for all h. Segment 2k is the open interval below the k-th distinct
// breakpoint, and segment 2k + 1 that breakpoint alone: the units that bend there are 0 with gradient 0, because
// relu'(0) = 0. Each unit is active either from some segment on or up to some segment. So slopes and offsets are
// running sums in one direction each, without subtraction. All values are float64.
#pragma once

#include <cstdint>
#include <vector>

namespace rf::nn {

class UnitSegments {
 public:
  // u, t: [units]; v: [heads, units]. A value that is not finite makes all results of its heads NaN.
  UnitSegments(const double* u, const double* t, const double* v, int64_t heads, int64_t units);

  int64_t heads() const { return heads_; }
  int64_t segments() const { return 2 * static_cast<int64_t>(breakpoints_.size()) + 1; }
  const std::vector<double>& breakpoints() const { return breakpoints_; }  // distinct, rising
  double slope(int64_t head, int64_t segment) const { return slopes_[head * segments() + segment]; }
  double offset(int64_t head, int64_t segment) const { return offsets_[head * segments() + segment]; }

  struct Gradients {
    std::vector<double> u, t, v;
  };
  // sums, sums_x: [heads, segments], of the gradient of f_h(x) and of that times x, over every x in the segment.
  Gradients gradients(std::vector<double> sums, std::vector<double> sums_x) const;

 private:
  enum class Active { kNever, kAlways, kFrom, kUpTo };
  struct Unit {
    double u, t;
    Active active;
    int64_t segment;  // the first or last active segment
  };

  int64_t heads_;
  std::vector<double> breakpoints_, v_, slopes_, offsets_;
  std::vector<Unit> units_;
};

}  // namespace rf::nn
