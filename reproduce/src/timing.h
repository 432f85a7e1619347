// Times of calls that are compared with each other.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace rf::reproduce {

// Seconds per call of each side, medians over `rounds` rounds. The sides alternate; in a round each is called for at
// least `window_seconds`. Each side is called once before.
std::vector<double> median_seconds(const std::vector<std::function<void()>>& sides, int64_t rounds,
                                   double window_seconds);

}  // namespace rf::reproduce
