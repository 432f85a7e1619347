// roformer finetune and roformer predict.
#include "rf/train/finetune.h"

#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "read_options.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/train/runtime.h"

namespace rf::cli {

namespace {

using train::FinetuneOptions;

// "text=sentence1" -> text: sentence1.
std::map<std::string, std::string> columns_of(const std::vector<std::string>& pairs) {
  std::map<std::string, std::string> columns;
  for (const std::string& pair : pairs) {
    const size_t equals = pair.find('=');
    const std::string name = pair.substr(0, equals);
    if (equals == std::string::npos || name.empty() || equals + 1 == pair.size() ||
        !columns.emplace(name, pair.substr(equals + 1)).second) {
      fail("finetune", "columns must be given once each, as name=field, got {}", io::printable(pair));
    }
  }
  return columns;
}

int run_finetune(const FinetuneOptions& options) {
  io::Progress progress = terminal_progress();
  const train::FinetuneReport report = train::finetune(options, progress);
  progress.finish();
  for (const train::FinetuneRun& run : report.runs) {
    emit({{"learning_rate", run.learning_rate},
          {"seed", run.seed},
          {"steps", run.steps},
          {"best_step", run.best_step},
          {"seconds", run.seconds},
          {"valid", run.metrics}});
  }
  if (report.signal != 0) {
    say("interrupted; the same command goes on from here");
    return kSignalBase + report.signal;
  }
  emit({{"output", options.output_dir}, {"chosen", report.report.at("chosen")}});
  say(report.table);
  return kOk;
}

void add_task_options(CLI::App& app, FinetuneOptions& options, std::vector<std::string>& columns) {
  app.add_option("--task", options.task.kind, "classification, regression, triples, choice, tokens or answers")
      ->required();
  app.add_option("--columns", columns, "Which field is what: text=sentence1,pair=sentence2,label=score")
      ->delimiter(',');
  app.add_option("--metric", options.task.metric, "What chooses the best evaluation; each task has a default");
  app.add_option("--max-length", options.task.max_length, "Tokens a row, special ones included")->capture_default_str();
  add_choice<text::Truncation>(app, "--truncation", options.task.truncation, "longest-first",
                               "Which text of a pair loses tokens: longest-first, only-first, only-second",
                               {{"longest-first", text::Truncation::kLongestFirst},
                                {"only-first", text::Truncation::kOnlyFirst},
                                {"only-second", text::Truncation::kOnlySecond}});
  add_choice<train::Keep>(
      app, "--keep", options.task.keep, "head", "What stays of a text that is too long: head, tail, head-tail",
      {{"head", train::Keep::kHead}, {"tail", train::Keep::kTail}, {"head-tail", train::Keep::kHeadTail}});
  app.add_option("--windows", options.task.windows,
                 "Read a text that is too long in so many windows at most, and pool their logits; 1: cut it off")
      ->capture_default_str();
  app.add_option("--stride", options.task.stride, "Tokens that a window repeats of the one before")
      ->capture_default_str();
  add_choice<train::Pooling>(app, "--pooling", options.task.pooling, "mean", "Of the windows' logits: mean or max",
                             {{"mean", train::Pooling::kMean}, {"max", train::Pooling::kMax}});
}

void add_training_options(CLI::App& app, FinetuneOptions& options) {
  app.add_option("--learning-rates", options.learning_rates, "Peak rates, each trained with every seed; default: 3e-5")
      ->delimiter(',');
  app.add_option("--seeds", options.seeds, "Seeds a rate: the first (--seed), the next, ..")->capture_default_str();
  app.add_option("--epochs", options.epochs, "Times through the training file")->capture_default_str();
  app.add_option("--batch", options.batch, "Records a step")->capture_default_str();
  add_choice<train::Schedule>(app, "--schedule", options.schedule, "linear",
                              "After the warm-up: linear (to 0) or constant",
                              {{"linear", train::Schedule::kLinear}, {"constant", train::Schedule::kConstant}});
  app.add_option("--warmup", options.warmup, "Part of the steps in which the rate rises")->capture_default_str();
  app.add_option("--weight-decay", options.weight_decay, "AdamW's, not on biases and norms")->capture_default_str();
  app.add_option("--clip-norm", options.clip_norm, "Of the whole gradient; 0: none")->capture_default_str();
  app.add_option("--label-smoothing", options.label_smoothing, "Part of a target that all classes share")
      ->capture_default_str();
  add_choice<train::Precision>(app, "--precision", options.precision, "bfloat16", "Of training: bfloat16 or float32",
                               {{"bfloat16", train::Precision::kBfloat16}, {"float32", train::Precision::kFloat32}});
  app.add_option("--evaluate-every-steps", options.evaluate_every_steps, "0: at the end of each epoch")
      ->capture_default_str();
  app.add_option("--patience", options.patience, "Evaluations without a better one that end a run; 0: all epochs")
      ->capture_default_str();
}

}  // namespace

std::function<int()> configure_finetune(CLI::App& app, const Common& common) {
  auto options = std::make_shared<FinetuneOptions>();
  auto columns = std::make_shared<std::vector<std::string>>();
  app.add_option("--model", options->model_dir, "Model directory to start from")->required();
  app.add_option("--train", options->files.train, "Records to train on: .jsonl .csv .tsv, also .gz and .zst")
      ->required();
  app.add_option("--valid", options->files.valid, "Records that choose the best evaluation")->required();
  app.add_option("--test", options->files.test, "Records for the model that was chosen");
  app.add_option(
         "--output", options->output_dir,
         "Directory of the model, report.md and every run. Started again with the same options, it goes on; runs that "
         "are done are not repeated")
      ->required();
  add_task_options(app, *options, *columns);
  add_training_options(app, *options);
  add_record_format(app, options->files.format, options->files.quotes);
  add_dictionary(app, options->load);
  return [options, columns, &common] {
    options->task.columns = columns_of(*columns);
    options->seed = common.seed.value_or(options->seed);
    options->note = say;
    train::keep_freed_memory();
    return run_finetune(*options);
  };
}

std::function<int()> configure_predict(CLI::App& app, const Common&) {
  auto options = std::make_shared<train::PredictOptions>();
  app.add_option("--model", options->model_dir, "Directory of a fine-tuned model")->required();
  add_record_options(app, options->input);
  app.get_option("--input")->required();
  app.add_option("--max-length", options->max_length, "Tokens a row; default: the task's");
  app.add_option("--batch", options->batch, "Records of one forward pass")->capture_default_str();
  add_dictionary(app, options->load);
  return [options] {
    train::predict(*options, emit);
    return kOk;
  };
}

}  // namespace rf::cli
