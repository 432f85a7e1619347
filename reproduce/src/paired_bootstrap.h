// Paired bootstrap resampling of BLEU (Koehn 2004): the lines of a test set are drawn with replacement, the same for
// all systems, and the difference of BLEU is computed again on each draw.
#pragma once

#include <cstdint>
#include <vector>

#include "rf/tasks/bleu.h"

namespace rf::reproduce {

using LineCounts = std::vector<tasks::BleuCounts>;  // of a system's translations, by line

double mean_bleu(const std::vector<LineCounts>& systems);

struct PercentileInterval {
  double low = 0, high = 0;
};
// 95% of the draws have a difference of mean_bleu(own) and mean_bleu(other) between low and high. At least one system
// on each side, all of the same lines; a function of its arguments.
PercentileInterval bootstrap_difference(const std::vector<LineCounts>& own, const std::vector<LineCounts>& other,
                                        int64_t draws, uint64_t seed);

}  // namespace rf::reproduce
