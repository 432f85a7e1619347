// Metrics of predictions (spec R-MET-02..06), equal to scikit-learn, scipy, seqeval and SQuAD's own script. If these
// return an undefined value or a default with a warning, the value here is stated below.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace rf::tasks {

// counts[gold][predicted] of `classes` classes, 0 <= class < classes.
std::vector<std::vector<int64_t>> confusion_matrix(std::span<const int64_t> gold, std::span<const int64_t> predicted,
                                                   int64_t classes);

struct ClassMetrics {
  double accuracy = 0;
  double f1 = 0;        // of class 1: 2 tp / (2 tp + fp + fn); 0 if class 1 is neither gold nor predicted
  double macro_f1 = 0;  // the mean f1 over the classes that are gold or predicted
  double matthews = 0;  // Matthews' correlation for any number of classes; 0 if gold or predictions contain only one
                        // class
};
// From a confusion matrix; all are NaN if it is empty.
ClassMetrics class_metrics(const std::vector<std::vector<int64_t>>& confusion);

// NaN for fewer than two numbers, and if all gold or all predicted numbers are equal.
double pearson(std::span<const double> gold, std::span<const double> predicted);
// Pearson's correlation of the ranks; equal numbers get their mean rank.
double spearman(std::span<const double> gold, std::span<const double> predicted);
double mean_squared_error(std::span<const double> gold, std::span<const double> predicted);  // NaN if empty

struct SpanMetrics {
  double precision = 0, recall = 0, f1 = 0;  // 0 if the predictions, the gold entities, or both are empty
};
// Entities in the scheme IOB2, strictly: B-X and the I-X that follow it. A predicted entity is right if a gold one has
// the same words and type. Counted over all sequences (micro), as seqeval's mode="strict", scheme=IOB2.
SpanMetrics entity_metrics(std::span<const std::vector<std::string>> gold,
                           std::span<const std::vector<std::string>> predicted);

// SQuAD's comparison of answers: in lower case (of ASCII), without ASCII punctuation and the articles a, an, the, and
// with single spaces. f1 counts the words in common. With several gold answers, the best match counts; an empty list,
// or "", means "no answer".
double answer_exact(const std::vector<std::string>& gold, const std::string& predicted);
double answer_f1(const std::vector<std::string>& gold, const std::string& predicted);

nlohmann::json number_or_null(double value);  // null: NaN or infinity

}  // namespace rf::tasks
