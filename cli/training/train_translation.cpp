// roformer train-translation.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "rf/train/runtime.h"
#include "rf/train/translation.h"
#include "training_command.h"

namespace rf::cli {

namespace {

struct TrainTranslationOptions {
  std::string config_path;
  std::vector<std::string> overrides;
  train::TranslationOptions training;
};

int run_train_translation(TrainTranslationOptions& options) {
  options.training.run = train::load_run_file(options.config_path, options.overrides, {});
  const train::TranslationReport report = train::train_translation(options.training, progress());
  progress().finish();
  nlohmann::json result = {{"output", options.training.output_dir},
                           {"steps", report.steps},
                           {"pairs", report.pairs},
                           {"train_loss", report.train_loss},
                           {"seconds", report.seconds},
                           {"target_tokens_per_second", report.target_tokens_per_second}};
  if (report.valid_loss) result["valid_loss"] = *report.valid_loss;
  if (!report.is_complete) result["interrupted_by_signal"] = report.signal;
  emit(result);
  if (report.is_complete) return kOk;
  say(fmt::format("interrupted after step {}; the same command continues from here", report.steps));
  return kSignalBase + report.signal;
}

std::function<int()> configure_train_translation(CLI::App& app, const Common& common) {
  auto options = std::make_shared<TrainTranslationOptions>();
  train::TranslationOptions& training = options->training;
  add_run_file(app, options->config_path, options->overrides, "");
  app.get_option("--config")->required();
  app.add_option("--train", training.train,
                 "Pairs to train on: two files, the source and the target, with a line for each pair; or one with both "
                 "in two columns and a tab between them; also .gz and .zst")
      ->required()
      ->expected(1, 2);
  app.add_option("--valid", training.valid, "Held-out pairs, in the same form")->expected(1, 2);
  app.add_option("--tokenizer", training.tokenizer_dir,
                 "Directory of the tokenizer of both languages, as of vocab --byte-pairs")
      ->required();
  app.add_option("--output", training.output_dir,
                 "Run directory: metrics, checkpoints and the model. The same command continues an interrupted run")
      ->required();
  add_device(app, training.device);
  return [options, &common] {
    options->training.seed = common.seed;
    options->training.note = say;
    use_device(common, options->training.device, options->config_path);
    train::keep_freed_memory();
    return run_train_translation(*options);
  };
}

}  // namespace

}  // namespace rf::cli

RF_TRAINING_COMMAND(train_translation, rf::cli::configure_train_translation)
