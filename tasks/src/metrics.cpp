// Metrics of classes, numbers, entities and answers (rf/tasks/metrics.h).
#include "rf/tasks/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <tuple>

namespace rf::tasks {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double ratio_or_zero(double numerator, double denominator) { return denominator == 0 ? 0 : numerator / denominator; }

// Ranks from 1; equal numbers get their mean rank.
std::vector<double> ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + end + 1) / 2;
  }
  return ranks;
}

// Gorodkin's R_K: the covariance of gold and predicted classes divided by the root of the product of their variances.
double matthews_correlation(const std::vector<double>& gold, const std::vector<double>& predicted, double right,
                            double all) {
  double products = 0, gold_squares = 0, predicted_squares = 0;
  for (size_t k = 0; k < gold.size(); ++k) {
    products += gold[k] * predicted[k];
    gold_squares += gold[k] * gold[k];
    predicted_squares += predicted[k] * predicted[k];
  }
  return ratio_or_zero(right * all - products,
                       std::sqrt(all * all - gold_squares) * std::sqrt(all * all - predicted_squares));
}

using Entity = std::tuple<size_t, size_t, size_t, std::string>;  // sequence, words [begin, end), type

std::set<Entity> entities(std::span<const std::vector<std::string>> sequences) {
  std::set<Entity> found;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const std::vector<std::string>& labels = sequences[s];
    for (size_t begin = 0; begin < labels.size(); ++begin) {
      if (!labels[begin].starts_with("B-")) continue;
      const std::string type = labels[begin].substr(2);
      size_t end = begin + 1;
      while (end < labels.size() && labels[end] == "I-" + type) ++end;
      found.emplace(s, begin, end, type);
    }
  }
  return found;
}

bool is_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// The words of an answer, normalised as by SQuAD's script.
std::vector<std::string> answer_words(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (is_punctuation(c)) continue;
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
      if (!words.back().empty()) words.emplace_back();
    } else {
      words.back() += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  std::erase_if(words,
                [](const std::string& word) { return word.empty() || word == "a" || word == "an" || word == "the"; });
  return words;
}

double word_f1(const std::vector<std::string>& gold, const std::vector<std::string>& predicted) {
  if (gold.empty() || predicted.empty()) return gold.empty() && predicted.empty() ? 1 : 0;
  std::map<std::string, int64_t> left;
  for (const std::string& word : gold) ++left[word];
  size_t same = 0;
  for (const std::string& word : predicted) {
    if (left[word]-- > 0) ++same;
  }
  return 2 * static_cast<double>(same) / static_cast<double>(gold.size() + predicted.size());
}

using Words = std::vector<std::string>;
double best_of(const std::vector<std::string>& gold, const std::string& predicted,
               double (*compare)(const Words&, const Words&)) {
  const Words words = answer_words(predicted);
  if (gold.empty()) return compare({}, words);
  double best = 0;
  for (const std::string& answer : gold) best = std::max(best, compare(answer_words(answer), words));
  return best;
}

}  // namespace

std::vector<std::vector<int64_t>> confusion_matrix(std::span<const int64_t> gold, std::span<const int64_t> predicted,
                                                   int64_t classes) {
  const auto size = static_cast<size_t>(classes);
  std::vector<std::vector<int64_t>> counts(size, std::vector<int64_t>(size, 0));
  for (size_t i = 0; i < gold.size(); ++i) {
    ++counts[static_cast<size_t>(gold[i])][static_cast<size_t>(predicted[i])];
  }
  return counts;
}

ClassMetrics class_metrics(const std::vector<std::vector<int64_t>>& confusion) {
  const size_t classes = confusion.size();
  std::vector<double> gold(classes, 0), predicted(classes, 0);
  double right = 0, all = 0;
  for (size_t i = 0; i < classes; ++i) {
    for (size_t j = 0; j < classes; ++j) {
      const auto count = static_cast<double>(confusion[i][j]);
      gold[i] += count;
      predicted[j] += count;
      all += count;
      if (i == j) right += count;
    }
  }
  if (all == 0) return {kNone, kNone, kNone, kNone};
  ClassMetrics metrics;
  metrics.accuracy = right / all;
  double sum = 0, seen = 0;
  for (size_t k = 0; k < classes; ++k) {
    const double f1 = ratio_or_zero(2 * static_cast<double>(confusion[k][k]), gold[k] + predicted[k]);
    if (k == 1) metrics.f1 = f1;
    if (gold[k] + predicted[k] == 0) continue;
    sum += f1;
    ++seen;
  }
  metrics.macro_f1 = sum / seen;
  metrics.matthews = matthews_correlation(gold, predicted, right, all);
  return metrics;
}

double pearson(std::span<const double> gold, std::span<const double> predicted) {
  if (gold.size() < 2) return kNone;
  const auto count = static_cast<double>(gold.size());
  const double gold_mean = std::accumulate(gold.begin(), gold.end(), 0.0) / count;
  const double predicted_mean = std::accumulate(predicted.begin(), predicted.end(), 0.0) / count;
  double products = 0, gold_squares = 0, predicted_squares = 0;
  for (size_t i = 0; i < gold.size(); ++i) {
    const double x = gold[i] - gold_mean, y = predicted[i] - predicted_mean;
    products += x * y;
    gold_squares += x * x;
    predicted_squares += y * y;
  }
  const auto all_equal = [](std::span<const double> values) {
    return std::all_of(values.begin(), values.end(), [&](double value) { return value == values.front(); });
  };
  if (all_equal(gold) || all_equal(predicted)) return kNone;  // exact test, because the sums may be only nearly 0
  return std::clamp(products / (std::sqrt(gold_squares) * std::sqrt(predicted_squares)), -1.0, 1.0);
}

double spearman(std::span<const double> gold, std::span<const double> predicted) {
  return pearson(ranks(gold), ranks(predicted));
}

double mean_squared_error(std::span<const double> gold, std::span<const double> predicted) {
  double sum = 0;
  for (size_t i = 0; i < gold.size(); ++i) sum += (gold[i] - predicted[i]) * (gold[i] - predicted[i]);
  return gold.empty() ? kNone : sum / static_cast<double>(gold.size());
}

SpanMetrics entity_metrics(std::span<const std::vector<std::string>> gold,
                           std::span<const std::vector<std::string>> predicted) {
  const std::set<Entity> wanted = entities(gold), given = entities(predicted);
  const auto right = static_cast<double>(
      std::count_if(given.begin(), given.end(), [&](const Entity& entity) { return wanted.contains(entity); }));
  const auto given_count = static_cast<double>(given.size()), wanted_count = static_cast<double>(wanted.size());
  return {ratio_or_zero(right, given_count), ratio_or_zero(right, wanted_count),
          ratio_or_zero(2 * right, given_count + wanted_count)};
}

double answer_exact(const std::vector<std::string>& gold, const std::string& predicted) {
  return best_of(gold, predicted, [](const Words& a, const Words& b) { return a == b ? 1.0 : 0.0; });
}

double answer_f1(const std::vector<std::string>& gold, const std::string& predicted) {
  return best_of(gold, predicted, word_f1);
}

nlohmann::json number_or_null(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(); }

}  // namespace rf::tasks
