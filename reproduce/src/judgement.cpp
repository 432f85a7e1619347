// The rules of trained experiments (judgement.h).
#include "judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "statistics.h"

namespace rf::reproduce {

namespace {

constexpr size_t kSmoothed = 5;  // compared losses are means of this many

double mean_of_last(const Curve& curve, size_t end) {
  const size_t begin = end > kSmoothed ? end - kSmoothed : 0;
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += curve.losses[i];
  return sum / static_cast<double>(end - begin);
}

double noise(const Spread& a, const Spread& b) {
  return std::max(a.range(), b.range());
}

std::string listed(const Losses& losses, const std::vector<std::string>& arms) {
  std::string text_of;
  for (const std::string& arm : arms) {
    text_of += fmt::format("{}{} {}", text_of.empty() ? "" : ", ", arm, text(spread(losses.at(arm))));
  }
  return text_of;
}

std::string count(size_t holding, size_t of) {
  return fmt::format("{} of {} seeds", holding, of);
}

}  // namespace

double late_mean(const Curve& curve) {
  double sum = 0;
  int64_t counted = 0;
  for (size_t i = 0; i < curve.steps.size(); ++i) {
    if (curve.steps[i] <= curve.steps.back() / 3) continue;
    sum += curve.losses[i];
    ++counted;
  }
  return sum / static_cast<double>(counted);
}

double steps_to_end_of(const Curve& curve, const Curve& other) {
  const double goal = mean_of_last(other, other.losses.size());
  for (size_t end = kSmoothed; end <= curve.losses.size(); ++end) {
    if (mean_of_last(curve, end) <= goal) return curve.steps[end - 1];
  }
  return curve.steps.back() + 1;
}

Judgement lower_late_loss(const Curves& curves, const std::vector<std::string>& arms, const std::string& baseline) {
  const std::vector<Curve>& others = curves.at(baseline);
  Judgement judgement{true, ""};
  for (const std::string& arm : arms) {
    std::vector<double> differences;
    for (size_t seed = 0; seed < others.size(); ++seed) {
      differences.push_back(late_mean(curves.at(arm)[seed]) - late_mean(others[seed]));
    }
    const auto holding = std::count_if(differences.begin(), differences.end(), [](double d) { return d < 0; });
    judgement.holds = judgement.holds && static_cast<size_t>(holding) == others.size();
    judgement.figures += fmt::format("{}{}: late training loss {} relative to {} (negative: lower), {}",
                                     judgement.figures.empty() ? "" : "; ", arm, text(spread(differences)), baseline,
                                     count(static_cast<size_t>(holding), others.size()));
  }
  return judgement;
}

Judgement reads_further(const std::vector<double>& at_length, const std::vector<double>& at_twice, double bound) {
  std::vector<double> growth;
  for (size_t seed = 0; seed < at_length.size(); ++seed) growth.push_back(at_twice[seed] - at_length[seed]);
  return {spread(growth).high <= bound, fmt::format("at twice the training length the held-out loss is {} higher, from "
                                                    "{}",
                                                    text(spread(growth)), text(spread(at_length)))};
}

Judgement rises_with_length(const std::vector<std::vector<double>>& accuracies, const std::vector<int64_t>& lengths) {
  Judgement judgement{true, "accuracy"};
  for (size_t i = 0; i < lengths.size(); ++i) {
    judgement.figures += fmt::format("{} {} at {} tokens", i == 0 ? "" : ",", text(spread(accuracies[i])), lengths[i]);
    for (size_t seed = 0; i > 0 && seed < accuracies[i].size(); ++seed) {
      judgement.holds = judgement.holds && accuracies[i][seed] > accuracies[i - 1][seed];
    }
  }
  return judgement;
}

Judgement faster_convergence(const Curves& curves, const std::string& arm, const std::vector<std::string>& baselines) {
  const std::vector<Curve>& own = curves.at(arm);
  Judgement judgement{true, ""};
  for (const std::string& baseline : baselines) {
    const std::vector<Curve>& others = curves.at(baseline);
    std::vector<double> differences, steps;
    size_t holding = 0;
    for (size_t seed = 0; seed < own.size(); ++seed) {
      differences.push_back(late_mean(own[seed]) - late_mean(others[seed]));
      steps.push_back(steps_to_end_of(own[seed], others[seed]));
      holding += differences.back() < 0 && steps.back() < others[seed].steps.back();
    }
    judgement.holds = judgement.holds && holding == own.size();
    judgement.figures += fmt::format(
        "{}compared with {}: late training loss {} higher (negative: lower), its final loss after "
        "{} of {:.0f} steps, {}",
        judgement.figures.empty() ? "" : "; ", baseline, text(spread(differences)), text(spread(steps)),
        others.front().steps.back(), count(holding, own.size()));
  }
  return judgement;
}

Judgement clipping_loses_nothing(const Losses& losses, const std::vector<std::string>& arms) {
  const Spread middle = spread(losses.at(arms.at(1))), longest = spread(losses.at(arms.at(2)));
  return {longest.mean >= middle.mean - noise(longest, middle), "held-out loss: " + listed(losses, arms)};
}

Judgement middle_terms_suffice(const Losses& losses, const std::string& both, const std::vector<std::string>& alone,
                               const std::string& all_four) {
  std::vector<std::string> arms = alone;
  arms.push_back(all_four);
  const Spread own = spread(losses.at(both));
  const bool holds = std::all_of(arms.begin(), arms.end(), [&](const std::string& arm) {
    const Spread other = spread(losses.at(arm));
    return own.mean <= other.mean + noise(own, other);
  });
  arms.insert(arms.begin(), both);
  return {holds, "held-out loss: " + listed(losses, arms)};
}

Judgement last_is_best(const Losses& losses, const std::vector<std::string>& methods) {
  const std::vector<double>& own = losses.at(methods.back());
  size_t holding = 0;
  for (size_t seed = 0; seed < own.size(); ++seed) {
    holding += std::all_of(methods.begin(), methods.end() - 1,
                           [&](const std::string& method) { return own[seed] < losses.at(method)[seed]; });
  }
  return {holding == own.size(), fmt::format("held-out loss: {}; {} is lowest with {}", listed(losses, methods),
                                             methods.back(), count(holding, own.size()))};
}

Judgement rope_among(const Losses& losses, const std::map<std::string, double>& milliseconds, const Field& field) {
  const Spread none = spread(losses.at("none")), rope = spread(losses.at("rope"));
  const auto lower = [&](const std::string& a, const std::string& b) {
    return spread(losses.at(a)).mean < spread(losses.at(b)).mean;
  };
  const std::string best_name = *std::min_element(field.relative.begin(), field.relative.end(), lower);
  const Spread best = spread(losses.at(best_name));
  const auto beats_none = [&](const std::string& arm) {
    const Spread own = spread(losses.at(arm));
    return none.mean > own.mean + noise(none, own);
  };
  const auto beaten = std::count_if(field.relative.begin(), field.relative.end(), beats_none);
  const bool close = rope.mean <= best.mean + noise(rope, best);
  const auto slower = std::count_if(field.slower.begin(), field.slower.end(), [&](const std::string& arm) {
    return milliseconds.at("rope") < milliseconds.at(arm);
  });
  const bool all_beaten = static_cast<size_t>(beaten) == field.relative.size() && beats_none("rope");
  const bool all_slower = static_cast<size_t>(slower) == field.slower.size();
  return {
      all_beaten && close && all_slower,
      fmt::format("none {}, worse than {} of {} relative encodings beyond noise; rope {}, the best of the others {} "
                  "{}; a step takes longer than rope's with {} of {}",
                  text(none), beaten, field.relative.size(), text(rope), best_name, text(best), slower,
                  field.slower.size())};
}

Judgement better_when_longer(const std::vector<double>& at_length, const std::vector<double>& at_twice,
                             double min_gain) {
  std::vector<double> gains;
  for (size_t seed = 0; seed < at_length.size(); ++seed) gains.push_back(at_twice[seed] - at_length[seed]);
  const Spread gain = spread(gains);
  return {gain.low >= min_gain, fmt::format("accuracy {} at the smaller length, {} at twice that: a gain of {}",
                                            text(spread(at_length)), text(spread(at_twice)), text(gain))};
}

Judgement equal_when_short(const ByLength& accuracies, double bound, double min_gain) {
  const Judgement on_short = as_good_as(accuracies.own_short, accuracies.other_short, bound);
  const double gain = spread(accuracies.own_long).mean - spread(accuracies.own_short).mean;
  return {on_short.holds && gain >= min_gain,
          fmt::format("on short rows {}; on longer ones {:+.3f}", on_short.figures, gain)};
}

Judgement as_good_as(const std::vector<double>& own, const std::vector<double>& other, double bound) {
  const Spread mine = spread(own), theirs = spread(other);
  return {std::abs(mine.mean - theirs.mean) <= bound,
          fmt::format("{} compared with {}, a difference of the means of {:+.3f}", text(mine), text(theirs),
                      mine.mean - theirs.mean)};
}

Judgement translates_as_well(const TranslationScores& scores, double least, double margin) {
  const Spread mine = spread(scores.own), theirs = spread(scores.other);
  return {mine.mean > least && theirs.mean > least && scores.low > -margin,
          fmt::format("{} compared with {}, a difference of the means of {:+.2f}, 95% interval {:+.2f} to {:+.2f}",
                      text(mine), text(theirs), mine.mean - theirs.mean, scores.low, scores.high)};
}

Judgement not_worse(const std::vector<TaskScores>& tasks, double bound) {
  Judgement judgement{true, ""};
  size_t better = 0;
  for (const TaskScores& task : tasks) {
    const double difference = spread(task.own).mean - spread(task.other).mean;
    judgement.holds = judgement.holds && difference >= -bound;
    better += difference > 0;
    judgement.figures += fmt::format("{}: {:+.3f}; ", task.task, difference);
  }
  judgement.figures += fmt::format("better on {} of {} tasks", better, tasks.size());
  return judgement;
}

Judgement above_baselines(const std::vector<TaskScores>& tasks) {
  Judgement judgement{true, ""};
  for (const TaskScores& task : tasks) {
    const double own = spread(task.own).mean;
    const bool above_baseline = own > task.baseline, above_words = own > task.bag_of_words;
    judgement.holds = judgement.holds && above_baseline && above_words;
    judgement.figures +=
        fmt::format("{}{} {:.3f}: {} {:.3f} of the baseline, {} {:.3f} of a bag of words",
                    judgement.figures.empty() ? "" : "; ", task.task, own, above_baseline ? "above" : "not above",
                    task.baseline, above_words ? "above" : "not above", task.bag_of_words);
  }
  return judgement;
}

Judgement frequencies_stay(const std::vector<double>& median_changes, double bound) {
  const Spread changes = spread(median_changes);
  return {changes.high < bound, fmt::format("median change of a frequency: {} of it", text(changes))};
}

Judgement little_correlation(const std::vector<double>& middle_over_content, double bound) {
  const Spread ratios = spread(middle_over_content);
  return {ratios.high <= bound,
          fmt::format("the larger of the two middle terms spreads {} times as far as the first", text(ratios))};
}

Judgement nearer_is_higher(const std::vector<double>& near, const std::vector<double>& far) {
  size_t holding = 0;
  for (size_t seed = 0; seed < near.size(); ++seed) holding += near[seed] > far[seed];
  return {holding == near.size(), fmt::format("mean score of near pairs {}, of far ones {}, higher with {}",
                                              text(spread(near)), text(spread(far)), count(holding, near.size()))};
}

}  // namespace rf::reproduce
