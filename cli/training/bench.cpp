// roformer bench: runs training steps on command (stdin), for a script that alternates timing windows between this and
// another program. bench/kernels.py times kernels.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "rf/train/pretrain_bench.h"
#include "rf/train/runtime.h"
#include "training_command.h"

namespace rf::cli {

namespace {

int run_bench(const train::PretrainBenchOptions& options) {
  if (options.model_dir.empty() || options.ids_path.empty() || options.labels_path.empty()) {
    fail_usage("bench",
               "--model, --ids and --labels must be given to time training steps, got {}. Hint: bench/kernels.py in "
               "the source tree times the kernels",
               options.model_dir.empty() ? "no --model" : "no --ids or no --labels");
  }
  train::keep_freed_memory();
  train::bench_pretrain_steps(
      options, [](std::string& line) { return static_cast<bool>(std::getline(std::cin, line)); }, emit_line);
  return kOk;
}

std::function<int()> configure_bench(CLI::App& app, const Common&) {
  auto options = std::make_shared<train::PretrainBenchOptions>();
  app.add_option("--model", options->model_dir, "Model directory to start from");
  app.add_option("--ids", options->ids_path, ".npy of integers [N,B,T], masked");
  app.add_option("--labels", options->labels_path, ".npy like the ids, -100 where not masked");
  add_switch(app, "--float32", options->precision, train::Precision::kFloat32, "Without bfloat16 autocast");
  return [options] { return run_bench(*options); };
}

}  // namespace

}  // namespace rf::cli

RF_TRAINING_COMMAND(bench, rf::cli::configure_bench)
