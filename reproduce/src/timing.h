// Times of calls that are compared with each other.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace rf::reproduce {

// Seconds per call of each side, by round. The sides alternate; in a round each is called for at least
// `window_seconds`. Each side is called once before.
std::vector<std::vector<double>> seconds_by_round(const std::vector<std::function<void()>>& sides, int64_t rounds,
                                                  double window_seconds);
// Medians of these over the rounds.
std::vector<double> median_seconds(const std::vector<std::function<void()>>& sides, int64_t rounds,
                                   double window_seconds);

}  // namespace rf::reproduce
