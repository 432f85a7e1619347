// roformer compare.
#include "rf/train/compare.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "rf/train/runtime.h"
#include "training_command.h"

namespace rf::cli {

namespace {

int run_compare(const train::CompareOptions& options) {
  const train::CompareReport report = train::compare(options, progress());
  progress().finish();
  const auto by_length = [&](const std::vector<std::optional<double>>& losses) {
    nlohmann::json json;
    for (size_t i = 0; i < report.lengths.size(); ++i) {
      json[std::to_string(report.lengths[i])] = losses[i] ? nlohmann::json(*losses[i]) : nlohmann::json();
    }
    return json;
  };
  for (const train::CompareRun& run : report.runs) {
    nlohmann::json line = {{"encoding", run.arm},           {"seed", run.seed},
                           {"step_ms", run.step_ms},        {"parameters", run.parameters},
                           {"seconds", run.seconds},        {"tokens", run.tokens},
                           {"loss", by_length(run.losses)}, {"unigram_loss", by_length(report.unigram_losses)},
                           {"peak_bytes", run.peak_bytes}};
    if (run.diverged_at > 0) line["diverged_at_step"] = run.diverged_at;
    emit(line);
  }
  if (report.signal == 0) {
    say(report.table);
    return kOk;
  }
  say("interrupted; the same command continues from here");
  return kSignalBase + report.signal;
}

std::function<int()> configure_compare(CLI::App& app, const Common& common) {
  auto options = std::make_shared<train::CompareOptions>();
  auto arms = std::make_shared<std::string>();
  app.add_option("--encodings", *arms,
                 "Names of roformer info --encodings, with commas; keys follow a name with colons: "
                 "shaw:max_relative_position=64. all: every encoding that the model of the run file can have")
      ->required();
  app.add_option("--data", options->data_dir, "Data directory made by prepare")->required();
  app.add_option("--output", options->output_dir,
                 "Directory of the comparison: table.csv, table.md and every run; python -m roformer_cpp.plot draws "
                 "it. The same command continues an interrupted comparison; finished runs are not repeated")
      ->required();
  add_run_file(app, options->config_path, options->overrides,
               " without position_encoding; default: 4 layers of 128, 400 steps of 32 x 128 tokens");
  add_default(app, "--seeds", options->seeds, "Seeds per encoding, counted from --seed");
  add_default(app, "--lengths", options->length_factors, "Held-out loss at these multiples of the training length")
      ->delimiter(',');
  add_device(app, options->device);
  return [options, arms, &common] {
    options->arms = train::split_arms(*arms);
    options->seed = common.seed;
    options->note = say;
    use_device(common, options->device, options->config_path);
    train::keep_freed_memory();
    return run_compare(*options);
  };
}

}  // namespace

}  // namespace rf::cli

RF_TRAINING_COMMAND(compare, rf::cli::configure_compare)
