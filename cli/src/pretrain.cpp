// roformer pretrain and roformer evaluate.
#include "rf/train/pretrain.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"

namespace rf::cli {

namespace {

int run_pretrain(const train::PretrainOptions& options) {
  io::Progress progress = terminal_progress();
  const train::PretrainReport report = train::pretrain(options, progress);
  progress.finish();
  nlohmann::json result = {{"output", options.output_dir},
                           {"steps", report.steps},
                           {"train_loss", report.train_loss},
                           {"tokens_per_second", report.tokens_per_second},
                           {"peak_rss_bytes", report.peak_rss_bytes}};
  if (report.evaluation.predicted_tokens > 0) result["evaluation"] = to_json(report.evaluation);
  if (report.signal != 0) result["interrupted_by_signal"] = report.signal;
  emit(result);
  if (report.signal == 0) return kOk;
  say(fmt::format("interrupted after step {}; a checkpoint was written, continue with --resume", report.steps));
  return kSignalBase + report.signal;
}

int run_evaluate(const train::EvaluateOptions& options) {
  io::Progress progress = terminal_progress();
  const train::EvaluationReport report = train::evaluate(options, progress);
  progress.finish();
  emit(to_json(report));
  return kOk;
}

}  // namespace

std::function<int()> configure_pretrain(CLI::App& app, const Common& common) {
  auto options = std::make_shared<train::PretrainOptions>();
  app.add_option("--config", options->config_path, "Run file (JSON); with --resume the run's own is the default");
  app.add_option("--data", options->data_dir, "Data directory made by prepare")->required();
  app.add_option("--output", options->output_dir, "Run directory: metrics, checkpoints and the model")->required();
  app.add_flag("--resume", options->resume, "Continue at the newest checkpoint, or at the start when there is none");
  return [options, &common] {
    options->seed = common.seed;
    options->note = say;
    return run_pretrain(*options);
  };
}

std::function<int()> configure_evaluate(CLI::App& app, const Common& common) {
  auto options = std::make_shared<train::EvaluateOptions>();
  app.add_option("--model", options->model_dir, "Model directory")->required();
  app.add_option("--data", options->data_dir, "Data directory made by prepare")->required();
  app.add_option("--split", options->split, "valid, train or test")->capture_default_str();
  app.add_option("--max-length", options->max_length, "Tokens a row")->capture_default_str();
  app.add_option("--batch", options->batch_size, "Rows a batch")->capture_default_str();
  app.add_option("--mask-probability", options->mask.probability,
                 "Part of the tokens that is masked (masked language models)")
      ->capture_default_str();
  app.add_flag_callback(
      "--whole-word", [options] { options->mask.unit = data::MaskUnit::kWholeWord; }, "Mask whole words");
  app.add_flag_callback(
      "--padded", [options] { options->packing = data::Packing::kPadded; },
      "A row is one piece of a document; default: rows are packed");
  app.add_flag_callback(
      "--bfloat16", [options] { options->precision = train::Precision::kBfloat16; },
      "Compute in bfloat16 where training does; default: float32");
  return [options, &common] {
    options->seed = common.seed.value_or(options->seed);
    return run_evaluate(*options);
  };
}

}  // namespace rf::cli
