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
// The first step at which the mean of the last five losses is at most that of the other curve's last five; a step past
// the end if there is none.
double steps_to_end_of(const Curve& curve, const Curve& other);

}  // namespace rf::reproduce
