// Masked-LM pretraining and evaluation. Headers of this room are free of torch.
#pragma once

#include <cstdint>
#include <string>

#include "rf/io/progress.h"
#include "rf/train/run_config.h"

namespace rf::train {

struct PretrainOptions {
  std::string config_path;  // the run file; with resume it may be empty: the run directory's copy
  std::string data_dir;
  std::string output_dir;   // the run directory: run.json, metrics.jsonl, checkpoint-*/, and at the end the model itself
  bool resume = false;
};

struct EvaluationReport {
  double loss = 0;             // nats a masked token
  double accuracy = 0;         // argmax at masked positions
  double unigram_loss = 0;     // cross-entropy of the same tokens under the training split's unigram distribution
  int64_t masked_tokens = 0;
};

struct PretrainReport {
  int64_t steps = 0;
  double train_loss = 0;       // mean over the last log interval
  double tokens_per_second = 0;
  EvaluationReport evaluation;
};

PretrainReport pretrain(const PretrainOptions& options, io::Progress& progress);

struct EvaluateOptions {
  std::string model_dir, data_dir;
  std::string split = "valid";
  int64_t max_length = 128, batch_size = 32;
  data::MaskOptions mask;
  uint64_t seed = 1;
  Precision precision = Precision::kFloat32;
};
EvaluationReport evaluate(const EvaluateOptions& options, io::Progress& progress);

}  // namespace rf::train
