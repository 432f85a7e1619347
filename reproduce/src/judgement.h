// The rules by which trained experiments confirm a claim (docs/reproduce.md). They are fixed here, as functions of the
// measured numbers alone, before anything is run; tests check each with made-up numbers for both outcomes.
//
// Noise: two means of losses count as different if they differ by more than the larger of the two ranges over seeds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace rf::reproduce {

struct Judgement {
  bool holds = false;
  std::string figures;
};

// Training loss of a run by step, rising steps.
struct Curve {
  std::vector<double> steps, losses;
};
// By arm, then seed; the same seeds in the same order for each arm.
using Curves = std::map<std::string, std::vector<Curve>>;
using Losses = std::map<std::string, std::vector<double>>;  // held out

// Mean of the losses in the last two thirds of a run.
double late_mean(const Curve& curve);
// The first step at which the mean of the last five losses is at most that of the other curve's last five; a step past
// the end if there is none.
double steps_to_end_of(const Curve& curve, const Curve& other);

// with every seed each of the arms has a lower late mean than the baseline.
Judgement lower_late_loss(const Curves& curves, const std::vector<std::string>& arms, const std::string& baseline);
// with every seed the loss at twice the length is at most `bound` above that at the training length.
Judgement reads_further(const std::vector<double>& at_length, const std::vector<double>& at_twice, double bound);
// with every seed accuracies rise strictly with the length. accuracies: by rising length, then seed.
Judgement rises_with_length(const std::vector<std::vector<double>>& accuracies, const std::vector<int64_t>& lengths);

// X-08, C-16: with every seed the accuracy at the greater length is at least `min_gain` above that at the smaller one.
Judgement better_when_longer(const std::vector<double>& at_length, const std::vector<double>& at_twice,
                             double min_gain);
// C-22: on short rows the means differ by `bound` at most, and on longer rows the mean is higher by `min_gain` or more.
struct ByLength {
  std::vector<double> other_short, own_short, own_long;  // accuracies by seed
};
Judgement equal_when_short(const ByLength& accuracies, double bound, double min_gain);
// The first half of C-22: the means differ by `bound` at most.
Judgement as_good_as(const std::vector<double>& own, const std::vector<double>& other, double bound);
// Metrics of a task, by seed: another encoding's and our own; and those of the two baselines, which know the targets
// alone, or the words without their order.
struct TaskScores {
  std::string task;
  std::vector<double> other, own;
  double baseline = 0, bag_of_words = 0;
};
// X-09, C-20: on each task our mean is at least that of the other less `bound`.
Judgement not_worse(const std::vector<TaskScores>& tasks, double bound);
// On each task our mean is above both baselines.
Judgement above_baselines(const std::vector<TaskScores>& tasks);

// X-10, C-19: both means are above `least`, and the interval of their difference, own less other, is above -`margin`.
struct TranslationScores {
  std::vector<double> own, other;  // BLEU by seed
  double low = 0, high = 0;        // of the difference of the means
};
Judgement translates_as_well(const TranslationScores& scores, double least, double margin);

// with every seed, `arm` has a lower late mean than each baseline and reaches the baseline's final loss earlier.
Judgement faster_convergence(const Curves& curves, const std::string& arm, const std::vector<std::string>& baselines);

// C-10: the longest clip is not better than the middle one beyond noise. Arms in the order short, middle, long.
Judgement clipping_loses_nothing(const Losses& losses, const std::vector<std::string>& arms);
// C-12: `both` middle terms are at least as good as each of `alone`, and as `all_four`, up to noise.
Judgement middle_terms_suffice(const Losses& losses, const std::string& both, const std::vector<std::string>& alone,
                               const std::string& all_four);
// C-13: with every seed the last of the methods has the lowest loss.
Judgement last_is_best(const Losses& losses, const std::vector<std::string>& methods);
// `none` is worse than every relative arm beyond noise; rope is as good as the best of them up to noise, and
// takes less time per step than each of `slower`. milliseconds: by arm, the median over seeds.
struct Field {
  std::vector<std::string> relative, slower;
};
Judgement rope_among(const Losses& losses, const std::map<std::string, double>& milliseconds, const Field& field);

// C-29: with every seed the median of |change| / before is below the bound.
Judgement frequencies_stay(const std::vector<double>& median_changes, double bound);
// C-11: with every seed the larger spread of the two middle terms is at most `bound` times that of the first.
Judgement little_correlation(const std::vector<double>& middle_over_content, double bound);
// X-02, trained: with every seed the mean score of near pairs is above that of far ones.
Judgement nearer_is_higher(const std::vector<double>& near, const std::vector<double>& far);

}  // namespace rf::reproduce
