// Optimizer options of the commands that train on records.
#pragma once

#include "read_options.h"
#include "rf/train/run_config.h"

namespace rf::cli {

// --schedule, with the rule after the warm-up in `help`, and --warmup. initial: name of the default schedule.
inline void add_schedule(CLI::App& app, train::Schedule& schedule, double& warmup, const char* initial,
                         const char* help) {
  add_choice<train::Schedule>(app, "--schedule", schedule, initial, help,
                              {{"linear", train::Schedule::kLinear}, {"constant", train::Schedule::kConstant}});
  add_default(app, "--warmup", warmup, "Part of the steps during which the rate rises");
}

inline void add_decay_and_clipping(CLI::App& app, double& weight_decay, double& clip_norm) {
  add_default(app, "--weight-decay", weight_decay, "AdamW's decay, not applied to biases and norms");
  add_default(app, "--clip-norm", clip_norm, "Largest norm of the whole gradient; 0: no clipping");
}

inline void add_training_precision(CLI::App& app, train::Precision& precision) {
  add_choice<train::Precision>(app, "--precision", precision, "bfloat16", "Precision of training: bfloat16 or float32",
                               {{"bfloat16", train::Precision::kBfloat16}, {"float32", train::Precision::kFloat32}});
}

}  // namespace rf::cli
