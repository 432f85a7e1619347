#include "rate_search.h"

#include <algorithm>
#include <map>
#include <utility>

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
  std::vector<double> open = search.rates;
  double best = 0;
  for (int64_t beyond = 0; !open.empty(); ++beyond) {
    for (const double rate : open) {
      const TriedRun tried = try_rate(rate);
      if (tried.signal != 0) return {.signal = tried.signal};
      losses[rate] = tried.loss;
    }
    const auto lower = [](const auto& a, const auto& b) { return a.second < b.second; };
    best = std::min_element(losses.begin(), losses.end(), lower)->first;
    open.clear();
    if (beyond == search.beyond || factor == 1) break;
    if (best == losses.begin()->first) open = {best / factor};
    if (best == losses.rbegin()->first) open = {best * factor};
  }
  TriedRates tried{.arm = arm, .rates = {}, .losses = {}};
  for (const auto& [rate, loss] : losses) {
    tried.rates.push_back(rate);
    tried.losses.push_back(loss);
  }
  context.log.rates.push_back(std::move(tried));
  return {.rate = best};
}

}  // namespace rf::reproduce
