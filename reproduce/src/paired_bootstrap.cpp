// Draws of lines (paired_bootstrap.h).
#include "paired_bootstrap.h"

#include <algorithm>

#include "rf/data/random.h"
#include "statistics.h"

namespace rf::reproduce {

namespace {

double bleu_of_lines(const LineCounts& lines, const std::vector<size_t>& drawn) {
  tasks::BleuCounts corpus;
  for (const size_t line : drawn) corpus += lines[line];
  return tasks::bleu(corpus);
}

double mean_bleu_of_lines(const std::vector<LineCounts>& systems, const std::vector<size_t>& drawn) {
  std::vector<double> scores;
  for (const LineCounts& system : systems) scores.push_back(bleu_of_lines(system, drawn));
  return spread(scores).mean;
}

}  // namespace

double mean_bleu(const std::vector<LineCounts>& systems) {
  std::vector<size_t> all(systems.at(0).size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  return mean_bleu_of_lines(systems, all);
}

PercentileInterval bootstrap_difference(const std::vector<LineCounts>& own, const std::vector<LineCounts>& other,
                                        int64_t draws, uint64_t seed) {
  const auto lines = std::ssize(own.at(0));
  std::vector<double> differences;
  std::vector<size_t> drawn(static_cast<size_t>(lines));
  for (int64_t draw = 0; draw < draws; ++draw) {
    for (int64_t i = 0; i < lines; ++i) {
      const data::PhiloxBlock words = data::draw(seed, data::Stream::kExampleOrder, 0, draw, i);
      drawn[static_cast<size_t>(i)] = static_cast<size_t>(data::scale_to(words[0], lines));
    }
    differences.push_back(mean_bleu_of_lines(own, drawn) - mean_bleu_of_lines(other, drawn));
  }
  std::sort(differences.begin(), differences.end());
  const auto at = [&](double part) {
    return differences[static_cast<size_t>(part * static_cast<double>(differences.size() - 1))];
  };
  return {at(0.025), at(0.975)};
}

}  // namespace rf::reproduce
