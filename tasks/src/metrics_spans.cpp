// Metrics of entities and answers (rf/tasks/metrics.h).
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "rf/tasks/metrics.h"

namespace rf::tasks {

namespace {

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

double ratio_of_counts(size_t numerator, size_t denominator) {
  return denominator == 0 ? 0 : static_cast<double>(numerator) / static_cast<double>(denominator);
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

SpanMetrics entity_metrics(std::span<const std::vector<std::string>> gold,
                           std::span<const std::vector<std::string>> predicted) {
  const std::set<Entity> wanted = entities(gold), given = entities(predicted);
  const auto right = static_cast<size_t>(
      std::count_if(given.begin(), given.end(), [&](const Entity& entity) { return wanted.contains(entity); }));
  return {ratio_of_counts(right, given.size()), ratio_of_counts(right, wanted.size()),
          ratio_of_counts(2 * right, given.size() + wanted.size())};
}

double answer_exact(const std::vector<std::string>& gold, const std::string& predicted) {
  return best_of(gold, predicted, [](const Words& a, const Words& b) { return a == b ? 1.0 : 0.0; });
}

double answer_f1(const std::vector<std::string>& gold, const std::string& predicted) {
  return best_of(gold, predicted, word_f1);
}

}  // namespace rf::tasks
