#include "rate_search.h"

#include <algorithm>
#include <map>
#include <utility>

#include "training_record.h"

namespace rf::reproduce {

RateSearch rate_search(Scale scale, int64_t small_steps) {
  if (scale == Scale::kPaper) return {};  // published rates
  return {.rates = {3e-4, 1e-3, 3e-3},
          .steps = by_scale(scale, int64_t{4}, small_steps),
          .beyond = by_scale(scale, int64_t{0}, int64_t{2})};
}

ChosenRate search_rate(const Context& context, const RateSearch& search, const std::string& arm,
                       const std::function<TriedRun(double)>& try_rate) {
  const double factor = search.rates.size() > 1 ? search.rates[1] / search.rates[0] : 1;
  std::map<double, double> losses;  // by rate
  TriedRates all{.arm = arm, .rates = {}, .losses = {}};
  std::vector<double> open = search.rates;
  double best = 0;
  for (int64_t beyond = 0; !open.empty(); ++beyond) {
    for (const double rate : open) {
      const TriedRun tried = try_rate(rate);
      if (tried.signal != 0) return {.signal = tried.signal};
      losses[rate] = tried.loss;
      all.training.push_back(training_of(arm, search.seed, tried.directory));
    }
    const auto lower = [](const auto& a, const auto& b) { return a.second < b.second; };
    best = std::min_element(losses.begin(), losses.end(), lower)->first;
    open.clear();
    if (beyond == search.beyond || factor == 1) break;
    if (best == losses.begin()->first) open = {best / factor};
    if (best == losses.rbegin()->first) open = {best * factor};
  }
  for (const auto& [rate, loss] : losses) {
    all.rates.push_back(rate);
    all.losses.push_back(loss);
  }
  context.log.rates.push_back(std::move(all));
  return {.rate = best};
}

}  // namespace rf::reproduce
