// The curves of a run, read from its metrics.jsonl (docs/formats.md); damaged lines are skipped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rf::train {

struct TrainingCurve {  // one entry per line
  std::vector<int64_t> steps;
  std::vector<double> losses, seconds;
};

// In step order. Throws Error, naming the key, for a line without one of the three.
TrainingCurve training_curve(const std::string& run_dir);

// A held-out measurement after a stage, on rows of a length that the model can read.
struct LengthEvaluation {
  int64_t stage = 0, length = 0;
  double loss = 0, accuracy = 0;
};
std::vector<LengthEvaluation> length_evaluations(const std::string& run_dir);

}  // namespace rf::train
