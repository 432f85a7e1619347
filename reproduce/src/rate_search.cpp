#include "rate_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "training_record.h"

namespace rf::reproduce {

void to_json(nlohmann::json& json, const RateSearch& search) {
  json = {{"rates", search.rates}, {"steps", search.steps}, {"seed", search.seed}, {"beyond", search.beyond}};
  if (search.lower == 0) return;
  json["lower"] = search.lower;
  json["tie"] = search.tie;
}

RateSearch rate_search(Scale scale, int64_t small_steps) {
  if (scale == Scale::kPaper) return {};  // published rates
  return {.rates = {3e-4, 1e-3, 3e-3},
          .steps = by_scale(scale, int64_t{4}, small_steps),
          .beyond = by_scale(scale, int64_t{0}, int64_t{2}),
          .lower = by_scale(scale, int64_t{0}, int64_t{3})};
}

namespace {

using Tries = std::map<double, TriedRun>;  // by rate

double best_of(const Tries& tries) {
  const auto lower = [](const auto& a, const auto& b) { return a.second.loss < b.second.loss; };
  return std::min_element(tries.begin(), tries.end(), lower)->first;
}

// The signal that ended the search, or 0.
int try_short(const RateSearch& search, double factor, const TryRate& run, Tries& tries) {
  std::vector<double> open = search.rates;
  for (int64_t beyond = 0; !open.empty(); ++beyond) {
    for (const double rate : open) {
      const TriedRun tried = run(rate);
      if (tried.signal != 0) return tried.signal;
      tries[rate] = tried;
    }
    open.clear();
    if (beyond == search.beyond || factor == 1) break;
    const double best = best_of(tries);
    if (best == tries.begin()->first) open = {best / factor};
    if (best == tries.rbegin()->first) open = {best * factor};
  }
  return 0;
}

// The highest rate whose loss is not told from the lowest one.
double highest_of_the_best(const Tries& tries, double tie) {
  const double lowest = tries.at(best_of(tries)).loss;
  double highest = best_of(tries);
  for (const auto& [rate, tried] : tries) {
    if (tried.loss <= lowest + tie) highest = std::max(highest, rate);
  }
  return highest;
}

// Downwards, until a run is worse than the one before.
int try_whole(const RateSearch& search, double factor, const TryRate& run, const Tries& short_tries, Tries& tries) {
  const double best = best_of(short_tries);
  double rate = highest_of_the_best(short_tries, search.tie);
  int64_t below = 0;  // which of the rates below the best one `rate` is
  while (below <= search.lower) {
    const TriedRun tried = run(rate);
    if (tried.signal != 0) return tried.signal;
    tries[rate] = tried;
    if (std::isfinite(tried.loss) && best_of(tries) != rate) break;
    const auto above = short_tries.lower_bound(rate);
    rate = above == short_tries.begin() ? rate / factor : std::prev(above)->first;
    if (rate < best) ++below;
  }
  return 0;
}

void list(const Tries& tries, std::vector<double>& rates, std::vector<double>& losses) {
  for (const auto& [rate, tried] : tries) {
    rates.push_back(rate);
    losses.push_back(tried.loss);
  }
}

}  // namespace

ChosenRate search_rate(const Context& context, const RateSearch& search, const std::string& arm,
                       const TryRate& short_run, const TryRate& whole_run) {
  const double factor = search.rates.size() > 1 ? search.rates[1] / search.rates[0] : 1;
  Tries short_tries, whole_tries;
  int signal = try_short(search, factor, short_run, short_tries);
  if (signal == 0 && search.lower > 0) signal = try_whole(search, factor, whole_run, short_tries, whole_tries);
  if (signal != 0) return {.signal = signal};
  TriedRates all{.arm = arm, .rates = {}, .losses = {}};
  list(short_tries, all.rates, all.losses);
  list(whole_tries, all.whole_rates, all.whole_losses);
  const double chosen = all.chosen();
  for (const auto& [rate, tried] : short_tries) all.training.push_back(training_of(arm, tried.seed, tried.directory));
  for (const auto& [rate, tried] : whole_tries) {
    const bool is_compared = rate == chosen && tried.seed != search.seed;
    if (!is_compared) all.training.push_back(training_of(arm, tried.seed, tried.directory));
  }
  context.log.rates.push_back(std::move(all));
  return {.rate = chosen};
}

}  // namespace rf::reproduce
