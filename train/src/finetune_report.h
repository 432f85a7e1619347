// The report of a fine-tuning as Markdown, and a confusion matrix as a picture (SVG).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rf/train/finetune.h"

namespace rf::train {

// Consecutive runs of one learning rate in a report, with the metric that chooses; an undefined metric is the lowest.
struct RateSummary {
  double learning_rate = 0;
  double mean = 0, low = 0, high = 0;  // over the seeds
  size_t best = 0;                     // index of its best run
};
std::vector<RateSummary> summaries(const std::vector<FinetuneRun>& runs, const std::string& metric);
// The rate with the best mean; the first of several.
const RateSummary& best_rate(const std::vector<RateSummary>& rates);

// report.json (finetune.cpp writes it) as Markdown.
std::string markdown_report(const nlohmann::json& report);
// Rows: gold; columns: predicted; darker cells are greater parts of their rows.
std::string confusion_svg(const std::vector<std::string>& labels, const std::vector<std::vector<int64_t>>& counts);

}  // namespace rf::train
