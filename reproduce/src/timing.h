// Times of calls that are compared with each other.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace rf::reproduce {

// Seconds of one call of each side: the sides take turns, `rounds` times, each time as many calls as take at least
// `window_seconds`; the medians over rounds. Each side is called once before.
std::vector<double> median_seconds(const std::vector<std::function<void()>>& sides, int64_t rounds,
                                   double window_seconds);

}  // namespace rf::reproduce
