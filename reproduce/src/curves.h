// Loss curves of training runs, and what rules compare of them.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace rf::reproduce {

// Training loss of a run by step, rising steps.
struct Curve {
  std::vector<double> steps, losses;
};
// By arm, then seed; the same seeds in the same order for each arm.
using Curves = std::map<std::string, std::vector<Curve>>;
using Losses = std::map<std::string, std::vector<double>>;  // held out

// Mean of the losses in the last two thirds of a run.
double late_mean(const Curve& curve);
// The steps after which a curve stays at or below the loss that both reach, of those of the other curve: 1 for equal
// curves, and the inverse with the two exchanged. That loss is the higher of the two last ones. Losses are means over a
// twentieth of the run, five points at least.
double steps_ratio(const Curve& curve, const Curve& other);

}  // namespace rf::reproduce
