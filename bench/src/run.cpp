// Verification, windows that take turns, medians of ratios (rf/bench/bench.h).
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>

#include "cases.h"

namespace rf::bench {

namespace {

constexpr double kTrafficBytes = 256.0 * (1 << 20);
constexpr int64_t kMaxSets = 64;  // of tiny arrays

// What one call of a side takes, in each round.
using Seconds = std::vector<double>;

// Sets of the same arrays and sides.
using Sets = std::vector<std::vector<Side>>;

Sets make_sets(const Case& c, const Options& options) {
  const auto needed = c.unit == Unit::kBytes ? static_cast<int64_t>(std::ceil(kTrafficBytes / c.amount)) : 1;
  Sets sets;
  for (int64_t i = 0; i < (options.sets != 0 ? options.sets : std::min(needed, kMaxSets)); ++i) {
    at::manual_seed(options.seed);
    sets.push_back(c.sides());
    if (options.peers == Peers::kNo) {
      std::erase_if(sets.back(), [](const Side& side) { return side.when == When::kWithPeers; });
    }
  }
  return sets;
}

double error_eps(const at::Tensor& got, const at::Tensor& want) {
  if (got.sizes() != want.sizes()) return INFINITY;
  const double eps = got.scalar_type() == at::kBFloat16 ? kEpsBf16 : kEpsF32;
  const double error = (got.to(at::kDouble) - want).abs().max().item<double>();
  return error / eps / want.abs().max().item<double>();
}

// What a side is compared with: results in float64, and where they are bfloat16, those of the plain formula in it.
struct Truth {
  Tensors want, plain;

  double max_eps(const at::Tensor& got, size_t i) const {
    if (got.scalar_type() != at::kBFloat16) return kMaxEps;
    return kLastRounding + (i < plain.size() ? kPlainErrors * error_eps(plain[i], want[i]) : 0);
  }
};

// The largest error of all results of each side.
std::vector<double> verify(const Case& c, const std::vector<Side>& sides) {
  std::vector<double> errors;
  Truth truth;
  for (const Side& side : sides) {
    if (side.truth) truth = {side.truth(), side.plain ? side.plain() : Tensors()};
    const Tensors got = side.run();
    if (got.size() != truth.want.size()) {
      throw std::runtime_error(fmt::format("[bench] {} of {} must have {} results, got {}", side.name, c.name,
                                           truth.want.size(), got.size()));
    }
    double worst = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double error = error_eps(got[i], truth.want[i]), limit = truth.max_eps(got[i], i);
      if (!(error <= limit)) {  // NaN too
        throw std::runtime_error(fmt::format("[bench] {} of {} must be within {:.3g} eps of float64, got {:.3g}",
                                             side.name, c.name, limit, error));
      }
      worst = std::max(worst, error);
    }
    errors.push_back(worst);
  }
  return errors;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<Seconds> take_turns(const Sets& sets, const Options& options) {
  const size_t count = sets[0].size();
  // Results that torch returned for a set are freed only when the set is used again, so that they too are in memory
  // that other sets have pushed out of the cache.
  std::vector<std::vector<Tensors>> held(sets.size(), std::vector<Tensors>(count));
  size_t calls = 0;
  const auto run = [&](size_t side) {
    const size_t set = calls++ % sets.size();
    held[set][side].clear();
    held[set][side] = sets[set][side].run();
  };
  const auto seconds_of = [&](size_t side, int repeats) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) run(side);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / repeats;
  };
  for (size_t side = 0; side < count; ++side) {
    for (size_t set = 0; set < sets.size(); ++set) run(side);  // the system gives memory at its first touch
  }
  std::vector<int> repeats;
  for (size_t side = 0; side < count; ++side) {
    repeats.push_back(std::max(1, static_cast<int>(options.window_ms / 1e3 / seconds_of(side, 3))));
  }
  std::vector<Seconds> seconds(count);
  for (int64_t round = 0; round < options.rounds; ++round) {
    for (size_t side = 0; side < count; ++side) {
      seconds_of(side, 1);  // the first call of a window pays for what the side before it left in the caches
      seconds[side].push_back(seconds_of(side, repeats[side]));
    }
  }
  return seconds;
}

}  // namespace

std::vector<Result> run_case(const Case& c, const Options& options) {
  const Sets sets = make_sets(c, options);
  const std::vector<double> errors = verify(c, sets[0]);
  const std::vector<Seconds> seconds = take_turns(sets, options);
  std::vector<Result> results;
  for (size_t side = 0; side < seconds.size(); ++side) {
    Seconds ratios;
    for (size_t round = 0; round < seconds[side].size(); ++round) {
      ratios.push_back(seconds[side][round] / seconds[0][round]);
    }
    const double call = median(seconds[side]), rate = c.amount / call / 1e9;
    results.push_back({.name = c.name,
                       .side = sets[0][side].name,
                       .sets = static_cast<int64_t>(sets.size()),
                       .error_eps = errors[side],
                       .median_us = call * 1e6,
                       .gflop_per_s = c.unit == Unit::kOperations ? rate : 0,
                       .gigabytes_per_s = c.unit == Unit::kBytes ? rate : 0,
                       .ours_times_as_fast = median(ratios)});
  }
  return results;
}

std::vector<std::string> case_names(const Options& options) {
  std::vector<std::string> names;
  for (const Case& c : select_cases(options)) names.push_back(c.name);
  return names;
}

void run(const Options& options, const std::function<void(const Result&)>& result) {
  for (const Case& c : select_cases(options)) {
    for (const Result& line : run_case(c, options)) result(line);
  }
}

}  // namespace rf::bench
