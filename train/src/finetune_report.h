// The report of a fine-tuning as Markdown, and a confusion matrix as a picture (SVG).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rf/train/finetune.h"

namespace rf::train {

// Runs of one learning rate, which follow each other in a report, with the metric that chooses; a metric that is not
// defined counts as the least.
struct RateSummary {
  double learning_rate = 0;
  double mean = 0, low = 0, high = 0;  // over the seeds
  size_t best = 0;                     // index of its best run
};
std::vector<RateSummary> summaries(const std::vector<FinetuneRun>& runs, const std::string& metric);
// The rate with the best mean; the first of equals.
const RateSummary& best_rate(const std::vector<RateSummary>& rates);

// report.json (finetune.cpp writes it) as Markdown.
std::string markdown_report(const nlohmann::json& report);
// Rows: gold; columns: predicted; a cell is the darker, the greater its part of the row.
std::string confusion_svg(const std::vector<std::string>& labels, const std::vector<std::vector<int64_t>>& counts);

}  // namespace rf::train
