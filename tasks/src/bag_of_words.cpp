// Closed-form baselines (bag_of_words.h).
#include "bag_of_words.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <unordered_map>

namespace rf::tasks {

namespace {

using Counts = std::map<int32_t, double>;  // by token

// For each input, the token counts of its rows from one of its texts: 0, the first, or 1.
std::vector<Counts> counts_of(const Example& example, int8_t text) {
  std::vector<Counts> counts;
  auto row = example.rows.begin();
  for (const int64_t rows : example.rows_of_input) {
    Counts& of_input = counts.emplace_back();
    for (const auto end = row + rows; row != end; ++row) {
      for (size_t i = 0; i < row->ids.size(); ++i) {
        if (row->text_index[i] == text) ++of_input[row->ids[i]];
      }
    }
  }
  return counts;
}

// Weights of tokens by the number of texts that contain them.
class InverseFrequencies {
 public:
  void add(const Counts& text) {
    ++texts_;
    for (const auto& [token, count] : text) ++texts_with_[token];
  }
  // The tf-idf vector of a text, normalised to length 1; empty if all its tokens are unknown.
  Counts weighted(const Counts& text) const {
    Counts vector;
    double squares = 0;
    for (const auto& [token, count] : text) {
      const auto with = texts_with_.find(token);
      if (with == texts_with_.end()) continue;
      const double weight = count * (1 + std::log((1 + texts_) / (1 + with->second)));
      vector.emplace(token, weight);
      squares += weight * weight;
    }
    for (auto& [token, weight] : vector) weight /= std::sqrt(squares);
    return vector;
  }

 private:
  double texts_ = 0;
  std::unordered_map<int32_t, double> texts_with_;
};

double dot(const Counts& a, const Counts& b) {
  double sum = 0;
  for (const auto& [token, weight] : a) {
    if (const auto other = b.find(token); other != b.end()) sum += weight * other->second;
  }
  return sum;
}

// Counts of the tokens of the first text of an example's first input.
Counts text_of(const Example& example) { return std::move(counts_of(example, 0).front()); }

size_t class_of(const Example& example) { return static_cast<size_t>(example.targets[0]); }

}  // namespace

std::vector<Scores> naive_bayes(std::span<const Example> train, std::span<const Example> examples, size_t classes) {
  std::unordered_map<int32_t, std::vector<double>> counts;  // of a token in the texts of each class
  std::vector<double> texts(classes, 0), tokens(classes, 0);
  for (const Example& example : train) {
    const size_t k = class_of(example);
    ++texts[k];
    const Counts text = text_of(example);
    for (const auto& [token, count] : text) {
      counts.try_emplace(token, classes, 0.0).first->second[k] += count;
      tokens[k] += count;
    }
  }
  std::vector<Scores> all;
  for (const Example& example : examples) {
    Scores& scores = all.emplace_back(classes, 0.0);
    for (size_t k = 0; k < classes; ++k) scores[k] = std::log(texts[k] / static_cast<double>(train.size()));
    const Counts text = text_of(example);
    for (const auto& [token, count] : text) {
      const auto known = counts.find(token);
      if (known == counts.end()) continue;
      for (size_t k = 0; k < classes; ++k) {
        scores[k] += count * std::log((known->second[k] + 1) / (tokens[k] + static_cast<double>(counts.size())));
      }
    }
  }
  return all;
}

std::vector<Scores> cosines(std::span<const Example> train, std::span<const Example> examples) {
  InverseFrequencies frequencies;
  for (const Example& example : train) {
    frequencies.add(text_of(example));
    const std::vector<Counts> seconds = counts_of(example, 1);
    for (const Counts& second : seconds) frequencies.add(second);
  }
  std::vector<Scores> all;
  for (const Example& example : examples) {
    Scores& scores = all.emplace_back();
    const std::vector<Counts> first = counts_of(example, 0), second = counts_of(example, 1);
    for (size_t i = 0; i < first.size(); ++i) {
      scores.push_back(dot(frequencies.weighted(first[i]), frequencies.weighted(second[i])));
    }
  }
  return all;
}

std::vector<Scores> gaussian_classes(std::span<const Example> train, std::span<const Scores> numbers,
                                     std::span<const Scores> asked, size_t classes) {
  // The last entry is for all numbers.
  std::vector<double> count(classes + 1, 0), mean(classes + 1, 0), variance(classes + 1, 0);
  const auto for_each = [&](const auto& use) {
    for (size_t i = 0; i < train.size(); ++i) {
      use(class_of(train[i]), numbers[i][0]);
      use(classes, numbers[i][0]);
    }
  };
  for_each([&](size_t k, double number) {
    ++count[k];
    mean[k] += number;
  });
  for (size_t k = 0; k <= classes; ++k) mean[k] /= count[k];
  for_each([&](size_t k, double number) { variance[k] += (number - mean[k]) * (number - mean[k]) / count[k]; });
  const double min_variance = std::max(1e-9 * variance[classes], 1e-30);  // for classes of equal numbers
  std::vector<Scores> all;
  for (const Scores& number : asked) {
    Scores& scores = all.emplace_back();
    for (size_t k = 0; k < classes; ++k) {
      const double spread = variance[k] + min_variance, away = number[0] - mean[k];
      scores.push_back(std::log(count[k] / count[classes]) - 0.5 * std::log(2 * std::numbers::pi * spread) -
                       away * away / (2 * spread));
    }
  }
  return all;
}

std::vector<Scores> fitted_line(std::span<const Example> train, std::span<const Scores> numbers,
                                std::span<const Scores> asked) {
  const auto count = static_cast<double>(train.size());
  double mean_number = 0, mean_target = 0, covariance = 0, variance = 0;
  for (size_t i = 0; i < train.size(); ++i) {
    mean_number += numbers[i][0] / count;
    mean_target += train[i].number / count;
  }
  for (size_t i = 0; i < train.size(); ++i) {
    const double away = numbers[i][0] - mean_number;
    covariance += away * (train[i].number - mean_target);
    variance += away * away;
  }
  const double slope = variance > 0 ? covariance / variance : 0;
  std::vector<Scores> all;
  for (const Scores& number : asked) all.push_back({mean_target + slope * (number[0] - mean_number)});
  return all;
}

}  // namespace rf::tasks
