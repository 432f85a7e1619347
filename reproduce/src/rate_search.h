// The learning rate of each arm of a comparison, by short runs before the runs that are compared.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "experiment.h"

namespace rf::reproduce {

// Each arm takes the rate with the lowest held-out loss; while that is the lowest or the highest, the next one beyond
// is tried, `beyond` times at most. The runs have a seed of their own.
struct RateSearch {
  std::vector<double> rates = {};  // rising by one factor; empty: the run files' rates are taken as they are
  int64_t steps = 0;
  uint64_t seed = 1000;
  int64_t beyond = 2;
  bool is_empty() const { return rates.empty(); }
  RF_MEMBERS(RateSearch, rates, steps, seed, beyond)
};
// Three rates; none at scale paper, which has published ones.
RateSearch rate_search(Scale scale, int64_t small_steps);

struct TriedRun {
  std::string directory;                                  // beside which its record is (training_record.h)
  double loss = std::numeric_limits<double>::infinity();  // held-out; infinite: the run's loss was not finite
  int signal = 0;
};
struct ChosenRate {
  double rate = 0;
  int signal = 0;  // not 0: the search was ended early
};
// Adds the rates that were tried, and the records of the runs with them, to the context's log.
ChosenRate search_rate(const Context& context, const RateSearch& search, const std::string& arm,
                       const std::function<TriedRun(double rate)>& try_rate);

}  // namespace rf::reproduce
