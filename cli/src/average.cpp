// roformer average: averages checkpoints.
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "rf/io/error.h"
#include "rf/model/run_checkpoints.h"

namespace rf::cli {

namespace {

struct AverageOptions {
  std::vector<std::string> models;
  std::string run, output;
  int64_t last = 5;
};

std::vector<std::string> directories(const AverageOptions& options) {
  if (!options.models.empty()) return options.models;
  if (!std::filesystem::is_directory(options.run)) {
    fail("average", "--run must be the directory of a run, got {}", options.run);
  }
  const std::vector<int64_t> steps = checkpoint_steps(options.run);
  if (options.last < 1 || std::ssize(steps) < options.last) {
    fail("average",
         "--last must be from 1 to the checkpoints of the run, {}, got {}; keep_checkpoints of its run file "
         "says how many are kept",
         steps.size(), options.last);
  }
  std::vector<std::string> found;
  for (auto step = steps.end() - options.last; step != steps.end(); ++step) {
    found.push_back(checkpoint_path(options.run, *step));
  }
  return found;
}

int run_average(const AverageOptions& options) {
  const std::vector<std::string> models = directories(options);
  average_checkpoints(models, options.output);
  emit({{"output", options.output}, {"models", models}});
  return kOk;
}

std::function<int()> configure_average(CLI::App& app, const Common&) {
  auto options = std::make_shared<AverageOptions>();
  CLI::Option_group* const source = app.add_option_group("source");
  source->add_option("--run", options->run, "Run directory, whose newest checkpoints are averaged");
  CLI::Option* const models = source->add_option("--models", options->models, "Model directories, in place of a run's");
  source->require_option(1);
  add_default(app, "--last", options->last, "How many checkpoints of the run")->excludes(models);
  app.add_option("--output", options->output, "Model directory to write; must not exist")->required();
  return [options] { return run_average(*options); };
}

}  // namespace

Command average_command() {
  return {"average", "Average the weights of checkpoints", "roformer average --run run --last 5 --output averaged",
          Command::Seed::kNotUsed, configure_average};
}

}  // namespace rf::cli
