// The learning rate of each arm of a comparison: short runs with several rates, and then whole ones, since short runs
// favour high rates.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "experiment.h"

namespace rf::reproduce {

// Short runs come first, with a seed that no other run has. The best rate is the one with the lowest held-out loss;
// while that is the lowest or the highest rate, the next one beyond is tried, `beyond` times at most. With `lower`,
// whole runs follow: from the highest rate that the short ones do not tell from the best to lower ones, while the loss
// falls, below that best rate `lower` times at most.
struct RateSearch {
  std::vector<double> rates = {};  // rising by one factor; empty: the run files' rates are taken as they are
  int64_t steps = 0;               // of the short runs
  uint64_t seed = 1000;            // of the short runs
  int64_t beyond = 2;
  int64_t lower = 0;  // in JSON it and `tie` are absent if it is 0
  double tie = 0.05;  // nats; short runs whose losses differ by less decide nothing
  bool is_empty() const { return rates.empty(); }
};
void to_json(nlohmann::json& json, const RateSearch& search);
// Three rates; none at scale paper, which has published ones.
RateSearch rate_search(Scale scale, int64_t small_steps);

struct TriedRun {
  std::string directory = {};  // beside which its record is (training_record.h)
  uint64_t seed = 0;
  double loss = std::numeric_limits<double>::infinity();  // held-out; infinite: the run's loss was not finite
  int signal = 0;
};
using TryRate = std::function<TriedRun(double rate)>;
struct ChosenRate {
  double rate = 0;
  int signal = 0;  // not 0: the search was ended early
};
// Adds the rates that were tried to the context's log, with the records of the runs but of the one that is compared
// later: a whole one with the chosen rate, unless its seed is the search's own. `whole_run` is called if the search has
// `lower`.
ChosenRate search_rate(const Context& context, const RateSearch& search, const std::string& arm,
                       const TryRate& short_run, const TryRate& whole_run = {});

}  // namespace rf::reproduce
