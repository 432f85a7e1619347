// roformer train-similar.
#include "rf/train/train_similar.h"

#include <memory>

#include "optimizer_options.h"
#include "read_options.h"
#include "rf/train/runtime.h"
#include "training_command.h"

namespace rf::cli {

namespace {

using train::SimilarTraining;

int run_train_similar(const SimilarTraining& options) {
  const train::SimilarTrainingReport report = train::train_similar(options, progress());
  progress().finish();
  nlohmann::json line = {{"output", options.output_dir},
                         {"pairs", report.pairs},
                         {"steps", report.steps},
                         {"generation_loss", report.generation_loss},
                         {"similarity_loss", report.similarity_loss}};
  if (!options.valid.empty() && report.is_complete) line["spearman"] = report.spearman;  // null if undefined
  emit(line);
  if (report.is_complete) return kOk;
  say("interrupted; the same command continues from here");
  return kSignalBase + report.signal;
}

void add_training_options(CLI::App& app, SimilarTraining& options) {
  add_default(app, "--epochs", options.epochs, "Passes through the pairs");
  add_default(app, "--batch", options.batch, "Pairs per step, each in both directions");
  add_default(app, "--max-length", options.max_length,
              "Maximum tokens of a --valid text, with special tokens; training pairs are truncated to twice as many, "
              "with a message");
  add_default(app, "--mask", options.mask,
              "Fraction of source texts in which 15 % of the words are masked; targets are not masked");
  add_default(app, "--learning-rate", options.learning_rate, "Peak rate");
  add_schedule(app, options.schedule, options.warmup, "constant", "After the warm-up: constant or linear (to 0)");
  add_decay_and_clipping(app, options.weight_decay, options.clip_norm);
  add_training_precision(app, options.precision);
}

std::function<int()> configure_train_similar(CLI::App& app, const Common& common) {
  auto options = std::make_shared<SimilarTraining>();
  auto columns = std::make_shared<std::map<std::string, std::string>>();
  app.add_option("--model", options->model_dir, "Model directory to start from, such as that of a pretrained RoFormer")
      ->required();
  app.add_option("--pairs", options->pairs,
                 "Pairs of similar texts, in the columns text and pair: .jsonl .csv .tsv, also .gz and .zst")
      ->required();
  app.add_option("--label", options->label, "Only records of --pairs whose column label has this value");
  app.add_option(
      "--valid", options->valid,
      "Scored pairs (a number in column label): Spearman correlation with cosine similarity after each epoch");
  app.add_option("--output", options->output_dir,
                 "Directory of the model. The same command continues an interrupted run")
      ->required();
  add_columns(app, *columns);
  add_training_options(app, *options);
  add_record_format(app, options->format, options->quotes);
  add_dictionary(app, options->load);
  return [options, columns, &common] {
    for (const auto& [column, field] : *columns) {
      const auto found = options->columns.find(column);
      if (found == options->columns.end()) {
        fail_usage("train-similar", "--columns must name text, pair and label, got {}", column);
      }
      found->second = field;
    }
    options->seed = common.seed.value_or(options->seed);
    options->note = say;
    check_dictionaries(options->load, options->output_dir);
    train::keep_freed_memory();
    return run_train_similar(*options);
  };
}

}  // namespace

}  // namespace rf::cli

RF_TRAINING_COMMAND(train_similar, rf::cli::configure_train_similar)
