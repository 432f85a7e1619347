// roformer reproduce.
#include "rf/reproduce/reproduce.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "machine_facts.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/train/runtime.h"
#include "training_command.h"

namespace rf::cli {

namespace {

struct ReproduceOptions {
  reproduce::Options run;
  std::string scale = "tiny";
  bool list = false, json = false, judge = false;
};

std::string command_line(const ReproduceOptions& options, const Common& common) {
  std::string line = "roformer reproduce";
  for (const std::string& name : options.run.names) line += " " + name;
  line += " --scale " + options.scale + " --output " + options.run.output_dir;
  if (!options.run.data_dir.empty()) line += " --data " + options.run.data_dir;
  if (common.threads > 0) line += fmt::format(" --threads {}", common.threads);
  return line;
}

int run_reproduce(ReproduceOptions& options, const Common& common) {
  options.run.scale = reproduce::scale_of_name(options.scale);
  if (options.list) {
    emit_list(reproduce::experiments(options.run.scale), {"name", "claims", "budget", "title"}, options.json);
    return kOk;
  }
  const auto show = [](const nlohmann::json& line) {
    emit(line);
    if (line.contains("missing_data")) {
      say(fmt::format("{} is left out: --data lacks {}", line.at("name").get<std::string>(),
                      line.at("missing_data").get<std::string>()));
    }
  };
  if (options.run.output_dir.empty())
    fail_usage("reproduce", "a directory for results must be given (--output), got none");
  options.run.command = command_line(options, common);
  options.run.machine_json = machine_facts().dump();
  if (options.judge) {
    if (!options.run.names.empty()) {
      fail_usage("reproduce", "--judge takes no names, got {}", io::printable(options.run.names.front()));
    }
    reproduce::judge_again(options.run, show);
    return kOk;
  }
  const reproduce::Report report = reproduce::reproduce(options.run, progress(), show);
  progress().finish();
  if (report.signal == 0) return kOk;
  say("interrupted; the same command continues from here");
  return kSignalBase + report.signal;
}

std::function<int()> configure_reproduce(CLI::App& app, const Common& common) {
  auto options = std::make_shared<ReproduceOptions>();
  app.add_option("names", options->run.names, "Experiments (--list names them), or all");
  CLI::Option* const scale =
      app.add_option(
             "--scale", options->scale,
             "tiny: everything once, in minutes; small: three seeds, in hours; paper: published hyperparameters")
          ->capture_default_str();
  app.add_option("--output", options->run.output_dir,
                 "Directory of the results. Finished experiments are kept, and interrupted training continues");
  app.add_option("--data", options->run.data_dir,
                 "Directory of data sets (docs/reproduce.md); without it, experiments that need data are skipped");
  CLI::Option* const list = app.add_flag("--list", options->list, "List the experiments without running them");
  add_json(app, options->json)->needs(list);
  app.add_flag("--judge", options->judge,
               "Judge all results in --output again by the rules as they are, without running anything")
      ->excludes(list)
      ->excludes(scale);
  return [options, &common] {
    options->run.note = say;
    train::keep_freed_memory();
    return run_reproduce(*options, common);
  };
}

}  // namespace

}  // namespace rf::cli

RF_TRAINING_COMMAND(reproduce, rf::cli::configure_reproduce)
