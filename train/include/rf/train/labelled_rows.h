// Trains a causal model on generated rows with labels at some of their tokens: synthetic tasks. It uses the optimizer,
// the schedules and the step of pretraining. Free of torch.
//
// A run takes seconds, so it writes no checkpoints; a run that a signal ended starts over. Rows, initial weights and
// dropout are functions of the seed, so it then gives the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "rf/io/progress.h"
#include "rf/train/run_config.h"

namespace rf::train {

struct LabelledRows {
  static constexpr int64_t kNoLabel = -1;

  int64_t rows = 0, tokens = 0;      // at least 1
  std::vector<int64_t> ids, labels;  // [rows * tokens]; below the model's vocab_size, or kNoLabel where nothing is
                                     // predicted
};

struct LabelledRun {
  RunConfig config;                                // objective causal, one stage without micro-batches
  std::function<LabelledRows(int64_t step)> rows;  // of step 1, 2, ..; at least one label
  std::vector<LabelledRows> held_out;              // measured after the last step
};

struct LabelledScore {
  double loss = 0;      // nats per label
  double accuracy = 0;  // argmax
};

struct LabelledReport {
  double train_loss = 0;  // mean of the last log interval
  int64_t parameters = 0;
  std::vector<std::optional<LabelledScore>> scores;  // of the held-out rows; empty if the model cannot read a length
  int signal = 0;  // SIGINT or SIGTERM when one ended the run early; nothing else is valid then
};

// Throws Error for a configuration that cannot be trained, rows that do not fit the model, and a loss or gradient that
// is not finite (the step is named).
LabelledReport train_labelled(const LabelledRun& run, io::Progress& progress);

}  // namespace rf::train
