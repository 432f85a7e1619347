// The training lines of a run's metrics.jsonl.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rf::train {

struct TrainingCurve {  // an entry a line
  std::vector<int64_t> steps;
  std::vector<double> losses, seconds;  // as docs/formats.md has them
};

// In step order; lines that are damaged are left out. Throws Error, naming the key, for a line without one of the
// three.
TrainingCurve training_curve(const std::string& run_dir);

}  // namespace rf::train
