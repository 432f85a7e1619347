// roformer finetune.
#include "rf/train/finetune.h"

#include <fmt/ranges.h>

#include <memory>

#include "optimizer_options.h"
#include "read_options.h"
#include "rf/tasks/task.h"
#include "rf/train/runtime.h"
#include "training_command.h"

namespace rf::cli {

namespace {

using train::FinetuneOptions;

int run_finetune(const FinetuneOptions& options) {
  const train::FinetuneReport report = train::finetune(options, progress());
  progress().finish();
  if (!report.is_first_rank) throw SilentExit{report.signal == 0 ? kOk : kSignalBase + report.signal};
  for (const train::FinetuneRun& run : report.runs) {
    emit({{"learning_rate", run.learning_rate},
          {"seed", run.seed},
          {"steps", run.steps},
          {"best_step", run.best_step},
          {"seconds", run.seconds},
          {"valid", run.metrics}});
  }
  if (report.signal != 0) {
    say("interrupted; the same command continues from here");
    return kSignalBase + report.signal;
  }
  emit({{"output", options.output_dir}, {"chosen", report.report.at("chosen")}});
  say(report.table);
  return kOk;
}

void add_task_options(CLI::App& app, FinetuneOptions& options) {
  std::vector<std::string_view> tasks;
  for (const tasks::TaskKind& kind : tasks::task_kinds()) tasks.emplace_back(kind.name);
  const std::string_view last = tasks.back();
  tasks.pop_back();
  app.add_option("--task", options.task.kind, fmt::format("{} or {}", fmt::join(tasks, ", "), last))->required();
  add_columns(app, options.task.columns);
  app.add_option("--metric", options.task.metric,
                 "Metric that selects the best evaluation; default: f1 for multi_label, tokens and answers, spearman "
                 "for regression, else accuracy");
  add_default(app, "--max-length", options.task.max_length, "Tokens per row, including special tokens");
  add_choice<text::Truncation>(app, "--truncation", options.task.truncation, "longest-first",
                               "Which text of a pair loses tokens: longest-first, only-first, only-second",
                               {{"longest-first", text::Truncation::kLongestFirst},
                                {"only-first", text::Truncation::kOnlyFirst},
                                {"only-second", text::Truncation::kOnlySecond}});
  add_choice<tasks::Keep>(
      app, "--keep", options.task.keep, "head", "Which part of a text that is too long is kept: head, tail, head-tail",
      {{"head", tasks::Keep::kHead}, {"tail", tasks::Keep::kTail}, {"head-tail", tasks::Keep::kHeadTail}});
  add_default(app, "--windows", options.task.windows,
              "Read a text that is too long in at most this many windows and pool their logits; 1: truncate it");
  add_default(app, "--stride", options.task.stride, "Tokens that a window repeats of the one before");
  add_choice<tasks::Pooling>(app, "--pooling", options.task.pooling, "mean",
                             "How the logits of the windows are pooled: mean or max",
                             {{"mean", tasks::Pooling::kMean}, {"max", tasks::Pooling::kMax}});
}

void add_training_options(CLI::App& app, FinetuneOptions& options) {
  app.add_option("--learning-rates", options.learning_rates, "Peak rates, each trained with every seed; default: 3e-5")
      ->delimiter(',');
  add_default(app, "--seeds", options.seeds, "Seeds per rate, counted from --seed");
  add_default(app, "--epochs", options.epochs, "Passes through the training file");
  add_default(app, "--batch", options.batch, "Records per step");
  add_schedule(app, options.schedule, options.warmup, "linear", "After the warm-up: linear (to 0) or constant");
  add_decay_and_clipping(app, options.weight_decay, options.clip_norm);
  add_default(app, "--label-smoothing", options.label_smoothing, "Label-smoothing factor, from 0 to below 1");
  add_choice<std::string>(
      app, "--classifier-pooling", options.classifier_pooling, "",
      "Pooling before the classification head: cls (first token) or mean; default: as in config.json",
      {{"cls", "cls"}, {"mean", "mean"}});
  add_training_precision(app, options.precision);
  add_default(app, "--evaluate-every-steps", options.evaluate_every_steps,
              "Steps between evaluations; 0: at the end of each epoch");
  add_default(app, "--patience", options.patience,
              "End a run after this many evaluations without improvement; 0: never");
}

std::function<int()> configure_finetune(CLI::App& app, const Common& common) {
  auto options = std::make_shared<FinetuneOptions>();
  app.add_option("--model", options->model_dir, "Model directory to start from")->required();
  app.add_option("--train", options->files.train, "Records to train on: .jsonl .csv .tsv, also .gz and .zst")
      ->required();
  CLI::Option_group* const valid = app.add_option_group("held out");
  valid->add_option("--valid", options->files.valid, "Records that choose the best evaluation");
  valid->add_option("--valid-fraction", options->files.valid_fraction,
                    "Instead of --valid: this part of the training file's records, drawn with the (first) seed");
  valid->require_option(1);
  app.add_option("--test", options->files.test, "Records on which the chosen model is measured");
  app.add_option(
         "--output", options->output_dir,
         "Directory of the model, report.md and every run. The same command continues an interrupted one; finished "
         "runs are not repeated")
      ->required();
  add_task_options(app, *options);
  add_training_options(app, *options);
  add_record_format(app, options->files.format, options->files.quotes);
  add_dictionary(app, options->load);
  add_device(app, options->device);
  return [options, &common] {
    options->seed = common.seed.value_or(options->seed);
    options->process_group = common.process_group;
    options->note = say;
    check_dictionaries(options->load, options->output_dir);
    use_device(common, options->device);
    train::keep_freed_memory();
    return run_finetune(*options);
  };
}

}  // namespace

}  // namespace rf::cli

RF_TRAINING_COMMAND(finetune, rf::cli::configure_finetune)
