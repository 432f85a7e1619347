// The training lines of a run's metrics.jsonl.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rf::train {

struct TrainingCurve {  // one entry per line
  std::vector<int64_t> steps;
  std::vector<double> losses, seconds;  // as in docs/formats.md
};

// In step order; damaged lines are skipped. Throws Error, naming the key, for a line without one of the three.
TrainingCurve training_curve(const std::string& run_dir);

}  // namespace rf::train
