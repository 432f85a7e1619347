// roformer pretrain.
#include "rf/train/pretrain.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "rf/train/runtime.h"
#include "training_command.h"

namespace rf::cli {

namespace {

int run_pretrain(const train::PretrainOptions& options) {
  const train::PretrainReport report = train::pretrain(options, progress());
  progress().finish();
  if (!report.is_first_rank) throw SilentExit{report.is_complete ? kOk : kSignalBase + report.signal};
  nlohmann::json result = {{"output", options.output_dir},
                           {"steps", report.steps},
                           {"train_loss", report.train_loss},
                           {"tokens_per_second", report.tokens_per_second},
                           {"peak_rss_bytes", report.peak_rss_bytes}};
  if (report.evaluation.predicted_tokens > 0) result["evaluation"] = to_json(report.evaluation);
  if (!report.is_complete) result["interrupted_by_signal"] = report.signal;
  emit(result);
  if (report.is_complete) return kOk;
  say(fmt::format("interrupted after step {}; a checkpoint was written, continue with --resume", report.steps));
  return kSignalBase + report.signal;
}

std::function<int()> configure_pretrain(CLI::App& app, const Common& common) {
  auto options = std::make_shared<train::PretrainOptions>();
  add_run_file(app, options->config_path, options->overrides, "; default with --resume: the run's own");
  app.add_option("--data", options->data_dir, "Data directory made by prepare")->required();
  app.add_option("--output", options->output_dir, "Run directory: metrics, checkpoints and the model")->required();
  app.add_option(
      "--profile", options->profile_steps,
      "Optimizer steps to profile, as 20 or 20:25 for the six from 20 to 25: a trace of torch's profiler and "
      "a table of the most expensive operators for each process, in the run directory");
  app.add_flag("--resume", options->resume, "Continue from the newest checkpoint, or start if there is none");
  add_device(app, options->device);
  return [options, &common] {
    if (options->config_path.empty() && !options->resume) {
      fail_usage("pretrain", "a run file must be given (--config), got none");
    }
    options->seed = common.seed;
    options->process_group = common.process_group;
    options->note = say;
    use_device(common, options->device, options->config_path);
    train::keep_freed_memory();
    return run_pretrain(*options);
  };
}

}  // namespace

}  // namespace rf::cli

RF_TRAINING_COMMAND(pretrain, rf::cli::configure_pretrain)
