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
  app.add_option("--warmup", warmup, "Part of the steps during which the rate rises")->capture_default_str();
}

inline void add_decay_and_clipping(CLI::App& app, double& weight_decay, double& clip_norm) {
  app.add_option("--weight-decay", weight_decay, "AdamW's decay, not applied to biases and norms")
      ->capture_default_str();
  app.add_option("--clip-norm", clip_norm, "Largest norm of the whole gradient; 0: no clipping")->capture_default_str();
}

inline void add_training_precision(CLI::App& app, train::Precision& precision) {
  add_choice<train::Precision>(app, "--precision", precision, "bfloat16", "Precision of training: bfloat16 or float32",
                               {{"bfloat16", train::Precision::kBfloat16}, {"float32", train::Precision::kFloat32}});
}

}  // namespace rf::cli
