// Times of calls (timing.h).
#include "timing.h"

#include <chrono>

#include "statistics.h"

namespace rf::reproduce {

namespace {

double seconds_per_call(const std::function<void()>& call, double window_seconds) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  double passed = 0;
  int64_t calls = 0;
  do {
    call();
    ++calls;
    passed = std::chrono::duration<double>(Clock::now() - start).count();
  } while (passed < window_seconds);
  return passed / static_cast<double>(calls);
}

}  // namespace

std::vector<std::vector<double>> seconds_by_round(const std::vector<std::function<void()>>& sides, int64_t rounds,
                                                  double window_seconds) {
  for (const auto& side : sides) side();
  std::vector<std::vector<double>> times(sides.size());
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) times[i].push_back(seconds_per_call(sides[i], window_seconds));
  }
  return times;
}

std::vector<double> median_seconds(const std::vector<std::function<void()>>& sides, int64_t rounds,
                                   double window_seconds) {
  std::vector<double> medians;
  for (const std::vector<double>& of_side : seconds_by_round(sides, rounds, window_seconds)) {
    medians.push_back(median(of_side));
  }
  return medians;
}

}  // namespace rf::reproduce
