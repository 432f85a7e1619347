// The run file of `pretrain`: JSON, read strictly (an unknown key is an error).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rf/data/batcher.h"
#include "rf/model/config.h"

namespace rf::train {

// One stage of training (the paper's Table 4): sequences of at most max_length tokens, `batch` rows per optimizer step,
// run as `accumulate` micro-batches.
struct Stage {
  int64_t max_length = 128;
  int64_t batch = 32;
  int64_t steps = 1000;
  int64_t accumulate = 1;
};

enum class Schedule { kConstant, kLinear, kCosine, kInverseSqrt, kPiecewise };

struct ScheduleConfig {
  Schedule kind = Schedule::kLinear;
  double learning_rate = 1e-3;  // the peak
  int64_t warmup_steps = 100;
  double initial_rate = 0.0;                       // at step 0 of the warm-up (fairseq: 1e-7)
  double final_rate = 0.0;                         // linear and cosine: at the last step
  std::vector<std::pair<int64_t, double>> points;  // piecewise: (step, multiplier), spec R-TRN-05 (b)
};

enum class Precision { kFloat32, kBfloat16 };  // kBfloat16: autocast with float32 master weights

// The data that a job divides among its ranks: only rows, or the optimizer's moments too.
enum class Sharding { kNone, kOptimizer };

// The parameters whose names match a shell pattern (*, ?, [..]) and are not in an earlier group.
struct ParameterGroup {
  std::string parameters;
  double learning_rate = 1;                      // multiplies the schedule's
  std::optional<double> weight_decay = {};       // of all parameters of the group, in place of the run's
  std::optional<double> initializer_range = {};  // standard deviation of new matrices and embeddings
};

struct AdamWOptions {
  double weight_decay = 0.01;  // not on biases and norms
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double clip_norm = 1.0;  // 0: none
  std::vector<ParameterGroup> groups = {};
};

struct RunConfig {
  ModelConfig model;      // "model": keys of config.json; vocab_size comes from the data
  std::string init_from;  // "" or a model directory to start from
  std::vector<Stage> stages;
  ScheduleConfig schedule;
  AdamWOptions optimizer;
  // kCausal: model.is_decoder is true, and mask is not used.
  data::Objective objective = data::Objective::kMasked;
  data::MaskOptions mask;
  data::Pairs pairs = data::Pairs::kNone;  // with kMasked: the model has Head::kPreTraining
  data::Packing packing = data::Packing::kPacked;
  Precision precision = Precision::kBfloat16;
  // For a job of several ranks (docs/distributed.md); one process ignores these keys.
  Sharding sharding = Sharding::kNone;
  Precision reduce_precision = Precision::kFloat32;  // in which gradients are summed over ranks
  bool reduce_overlap = true;                        // during the backward pass
  uint64_t seed = 1;
  int64_t log_every_steps = 10;
  int64_t evaluate_every_steps = 0;       // 0: at the end of each stage only
  int64_t evaluate_batches = 0;           // 0: all held-out rows
  std::vector<int64_t> evaluate_lengths;  // also measure the held-out loss in such rows after each stage
  int64_t checkpoint_every_steps = 500;
  int64_t keep_checkpoints = 2;
};

// The run file `path`, or `run` if that is "", with values replaced: {"schedule.learning_rate=2e-3",
// "stages.0.steps=40"}. A value is JSON, otherwise a string.
nlohmann::json load_run_file(const std::string& path, const std::vector<std::string>& overrides, nlohmann::json run);
RunConfig parse_run_config(const nlohmann::json& json);
nlohmann::json to_json(const RunConfig& config);
// Learning rate of step 1, 2, ..., total (spec R-TRN-05).
double learning_rate(const ScheduleConfig& schedule, int64_t step, int64_t total_steps);

}  // namespace rf::train
