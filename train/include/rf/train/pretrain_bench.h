// Timing of pretraining steps on command, so that timing windows can alternate with another program's on the same
// machine. The model and the batches come from files that both programs read.
#pragma once

#include <functional>
#include <string>

#include "rf/train/run_config.h"

namespace rf::train {

struct PretrainBenchOptions {
  std::string model_dir;    // the weights to start from
  std::string ids_path;     // .npy, integers [N,B,T]: batches with some tokens replaced by [MASK]
  std::string labels_path;  // .npy, integers [N,B,T]: the original id at masked positions, -100 elsewhere
  Precision precision = Precision::kBfloat16;
};

// Reads one command per line from `read_line` (false: no more) and writes one JSON object per command to `write_line`:
//   loss      {"loss": nats per masked token of batch 0, dropout off}
//   steps N   {"steps": N, "seconds": ..., "tokens": ..., "loss": of the last step}   N optimizer steps with dropout,
//             clipping at 1 and AdamW (rate 1e-4, weight decay 0.01) on the batches in turn
void bench_pretrain_steps(const PretrainBenchOptions& options, const std::function<bool(std::string&)>& read_line,
                          const std::function<void(const std::string&)>& write_line);

}  // namespace rf::train
