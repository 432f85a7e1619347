// The results of a comparison as CSV (one line per run) and Markdown (one line per arm, mean and spread over its
// seeds).
#pragma once

#include <string>

#include "rf/train/compare.h"

namespace rf::train {

std::string csv_table(const CompareReport& report);
std::string markdown_table(const CompareReport& report);

}  // namespace rf::train
