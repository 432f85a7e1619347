// A fine-tuning from its options to the model that it chooses (rf/train/finetune.h).
#include "rf/train/finetune.h"
#include "rf/data/identity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "checkpoint.h"
#include "device.h"
#include "finetune_data.h"
#include "finetune_run.h"
#include "interrupt.h"
#include "job_start.h"
#include "platform.h"
#include "ranks.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/model/foreign_models.h"
#include "rf/model/model_types.h"
#include "rf/tasks/metrics.h"
#include "rf/train/run_directory.h"
#include "run_file.h"
#include "run_series.h"

namespace rf::train {

using tasks::number_or_null, tasks::Scored, tasks::Scores, tasks::Split;

namespace {

namespace fs = std::filesystem;

// Number of training records on which the chosen model is measured, in addition to the valid file.
constexpr size_t kTrainSample = 1000;

nlohmann::json to_json(const FinetuneRun& run) {
  return {{"learning_rate", run.learning_rate}, {"seed", run.seed},       {"steps", run.steps},
          {"best_step", run.best_step},         {"seconds", run.seconds}, {"metrics", run.metrics}};
}

FinetuneRun read_run(const std::string& path, const std::string& metric) {
  const nlohmann::json json = io::read_json(path);
  try {
    io::StrictObject run(json, "result.json", "");
    run.require({"learning_rate", "seed", "steps", "best_step", "seconds"});
    return {.learning_rate = run.number("learning_rate", 0, kPositive),
            .seed = static_cast<uint64_t>(run.integer("seed", 0, 0, INT64_MAX)),
            .steps = run.integer("steps", 0, 1, INT64_MAX),
            .best_step = run.integer("best_step", 0, 1, INT64_MAX),
            .seconds = run.number("seconds", 0, kNotNegative),
            .metrics = metrics_of(run, metric)};
  } catch (const Error& error) {
    fail("finetune", "{} must be undamaged, got: {}; remove it to train this run again", path, error.what());
  }
}

void check_options(const FinetuneOptions& options) {
  static constexpr int64_t kMax = int64_t{1} << 30;
  const auto count = [](const char* name, int64_t value) {
    if (value < 1 || value > kMax) fail("finetune", "{} must be from 1 to {}, got {}", name, kMax, value);
  };
  const auto at_least = [](const char* name, double value, double min) {
    if (!(value >= min)) fail("finetune", "{} must be at least {}, got {}", name, min, value);
  };
  count("epochs", options.epochs);
  count("batch", options.batch);
  count("seeds", options.seeds);
  at_least("patience", static_cast<double>(options.patience), 0);
  at_least("evaluate-every-steps", static_cast<double>(options.evaluate_every_steps), 0);
  at_least("weight-decay", options.weight_decay, 0);
  at_least("clip-norm", options.clip_norm, 0);
  const auto is_fraction = [](double value) { return value >= 0 && value < 1; };
  const bool has_fraction = options.files.valid_fraction > 0 && options.files.valid_fraction < 1;
  if (options.files.valid.empty() && !has_fraction) {
    fail("finetune", "valid-fraction must be in (0, 1), got {}", options.files.valid_fraction);
  }
  if (!is_fraction(options.warmup)) fail("finetune", "warmup must be in [0, 1), got {}", options.warmup);
  if (!is_fraction(options.label_smoothing)) {
    fail("finetune", "label-smoothing must be in [0, 1), got {}", options.label_smoothing);
  }
  if (options.learning_rates.empty()) fail("finetune", "at least one learning rate must be given, got none");
  for (size_t i = 0; i < options.learning_rates.size(); ++i) {
    const double rate = options.learning_rates[i];
    if (!(rate > 0) || !std::isfinite(rate))
      fail("finetune", "a learning rate must be a finite number above 0, got {}", rate);
    const auto end = options.learning_rates.begin() + static_cast<ptrdiff_t>(i);
    if (std::find(options.learning_rates.begin(), end, rate) != end) {
      fail("finetune", "learning rates must differ, got {} twice", rate);
    }
  }
}

// Consecutive runs of one learning rate in a report, with the metric that chooses.
struct RateSummary {
  double learning_rate = 0;
  double mean = 0, low = 0, high = 0;  // over the seeds
  size_t best = 0;                     // index of its best run
};

std::string number_text(const nlohmann::json& value) {
  return value.is_number_float() ? fmt::format("{:.4f}", value.get<double>()) : value.is_null() ? "-" : value.dump();
}

// One line per metric: the model on each split, compared with its baselines.
std::string metrics_table(const nlohmann::json& report) {
  const nlohmann::json& chosen = report.at("chosen");
  std::string head = "| metric |", rule = "|---|";
  std::vector<const nlohmann::json*> columns;
  for (const char* split : {"train", "valid", "test"}) {
    if (!chosen.contains(split)) continue;
    const auto add = [&](const std::string& title, const nlohmann::json& metrics) {
      head += fmt::format(" {} |", title);
      rule += "---:|";
      columns.push_back(&metrics);
    };
    add(split, chosen.at(split));
    if (!report.at("baseline").contains(split)) continue;  // no baseline for the train file
    add("baseline", report.at("baseline").at(split));
    if (report.contains("bag_of_words")) add("bag of words", report.at("bag_of_words").at(split));
  }
  std::string out = head + "\n" + rule + "\n";
  for (const auto& [name, value] : chosen.at("valid").items()) {
    out += fmt::format("| {} |", name);
    for (const nlohmann::json* metrics : columns) out += fmt::format(" {} |", number_text(metrics->at(name)));
    out += "\n";
  }
  return out;
}

std::string rates_table(const nlohmann::json& report) {
  std::string out = fmt::format("| learning rate | seeds | {} on valid: mean (lowest to highest) |\n|---:|---:|---|\n",
                                report.at("metric").get<std::string>());
  for (const nlohmann::json& rate : report.at("rates")) {
    out += fmt::format("| {:g} | {} | {} ({} to {}) |\n", rate.at("learning_rate").get<double>(),
                       rate.at("seeds").get<int64_t>(), number_text(rate.at("mean")), number_text(rate.at("low")),
                       number_text(rate.at("high")));
  }
  return out;
}

std::vector<RateSummary> summaries(const std::vector<FinetuneRun>& runs, const std::string& metric) {
  std::vector<RateSummary> rates;
  for (size_t begin = 0, end = 0; begin < runs.size(); begin = end) {
    const double first = chosen_by(runs[begin].metrics, metric);
    RateSummary rate{runs[begin].learning_rate, 0, first, first, begin};
    while (end < runs.size() && runs[end].learning_rate == rate.learning_rate) {
      const double value = chosen_by(runs[end].metrics, metric);
      rate.mean += value;
      rate.low = std::min(rate.low, value);
      if (value > rate.high) rate.best = end;
      rate.high = std::max(rate.high, value);
      ++end;
    }
    rate.mean /= static_cast<double>(end - begin);
    rates.push_back(rate);
  }
  return rates;
}

// The rate with the best mean; the first of several.
const RateSummary& best_rate(const std::vector<RateSummary>& rates) {
  return *std::max_element(rates.begin(), rates.end(),
                           [](const RateSummary& a, const RateSummary& b) { return a.mean < b.mean; });
}

// report.json as Markdown.
std::string markdown_report(const nlohmann::json& report) {
  const nlohmann::json& chosen = report.at("chosen");
  std::string out = fmt::format("# {}\n\nFrom {}; learning rate {:g}, seed {}, step {}, chosen by {} on valid.\n\n",
                                report.at("task").get<std::string>(), report.at("model").get<std::string>(),
                                chosen.at("learning_rate").get<double>(), chosen.at("seed").get<uint64_t>(),
                                chosen.at("step").get<int64_t>(), report.at("metric").get<std::string>());
  out += metrics_table(report) + "\n" + rates_table(report) + "\n";
  out += fmt::format("- {} of the train records were measured\n", report.at("train_sample").get<int64_t>());
  for (const auto& [name, count] : report.at("records").items()) {
    out += fmt::format("- {}: {} records", name, count.get<int64_t>());
    const nlohmann::json& shared = report.at("shared_with_train");
    if (shared.contains(name)) out += fmt::format(", {} of them also in train", shared.at(name).get<int64_t>());
    out += "\n";
  }
  if (report.contains("confusion")) {
    out +=
        fmt::format("- confusion of the classes of the {} records: python -m roformer_cpp.plot with this directory\n",
                    report.at("confusion").at("split").get<std::string>());
  }
  for (const nlohmann::json& warning : report.at("warnings")) out += fmt::format("- {}\n", warning.get<std::string>());
  return out;
}

class Finetuning {
 public:
  Finetuning(const FinetuneOptions& options, const Ranks& ranks, io::Progress& progress)
      : options_(options),
        ranks_(ranks),
        progress_(progress),
        kind_(tasks::task_kind(options.task.kind)),
        series_(std::ssize(options.learning_rates) * options.seeds) {
    ranks.together([&] { open(); });
    const nlohmann::json grid = {{"rates", options.learning_rates}, {"seeds", options.seeds}, {"seed", options.seed}};
    require_same_job(ranks, {{"settings", settings_}, {"runs", grid}}, identity_, fresh_platform());
    require_shared(ranks, options.output_dir);
  }

  FinetuneReport go() {
    std::vector<std::pair<double, uint64_t>> all;  // rate and seed
    for (const double rate : options_.learning_rates) {
      for (int64_t i = 0; i < options_.seeds; ++i) all.emplace_back(rate, options_.seed + static_cast<uint64_t>(i));
    }
    int signal = 0;
    {
      const InterruptScope interrupt(ranks_.size() > 1 ? InterruptScope::Process::kOfJob
                                                       : InterruptScope::Process::kAlone);
      for (size_t i = 0; i < all.size() && interrupt.received() == 0; ++i) {
        if (ranks_.has(static_cast<int64_t>(i))) train(all[i].first, all[i].second, interrupt);
      }
      signal = static_cast<int>(ranks_.largest_at_end(interrupt.received()));
    }
    if (signal != 0 || !ranks_.is_first()) return {runs_, nullptr, "", signal, ranks_.is_first()};
    if (ranks_.size() > 1) {
      runs_.clear();
      for (const auto& [rate, seed] : all) {
        runs_.push_back(read_run(run_dir(rate, seed) + "/result.json", model_.settings.metric));
      }
    }
    finish();
    return {runs_, report_, markdown_report(report_), 0, true};
  }

 private:
  // Reads everything, so that bad input is found before the first run.
  void open() {
    check_options(options_);
    report_ = {{"task", kind_.name},
               {"model", options_.model_dir},
               {"warnings", nlohmann::json::array()},
               {"shared_with_train", nlohmann::json::object()}};
    check_model_type(options_.model_dir, Opens::kEncoders);
    model_.tokenizer = tasks::load_tokenizer(options_.model_dir, options_.load);
    tokenizer_files_.emplace(options_.model_dir);
    make_task();
    choose_metric();
    if (!options_.classifier_pooling.empty() && model_.task->head() != Head::kSequenceClassification) {
      fail("finetune", "classifier-pooling goes with tasks that classify sequences, got {} with {}",
           options_.classifier_pooling, kind_.name);
    }
    model_.model = initial_model(options_, *model_.task, options_.seed);
    const ModelConfig& config = model_.model->config();
    const Head head = model_.model->head();
    if (!has_class(config, head)) {
      warn(fmt::format("warning: transformers has no class {}, so it will not open the tuned model",
                       architecture_of(config, head)));
    }
    tasks::check_length(*model_.model, model_.settings.max_length);
    keep_settings();
  }

  std::vector<data::Record> read(const std::vector<std::string>& inputs, const std::string& name) const {
    return tasks::read_records({inputs, options_.files.format, options_.files.quotes}, name);
  }

  void make_task() {
    std::vector<data::Record> train = read(options_.files.train, "train");
    tasks::TaskSettings& settings = model_.settings = options_.task;
    settings.columns = tasks::resolve_columns(kind_, options_.task.columns, train);
    tasks::check_settings(settings);
    if (options_.label_smoothing > 0 && !kind_.has_classes) {
      fail("finetune", "label-smoothing goes with tasks that choose among classes, got {} with {}",
           options_.label_smoothing, kind_.name);
    }
    if (kind_.learn != nullptr) kind_.learn(train, settings);
    std::vector<data::Record> valid = options_.files.valid.empty()
                                          ? take_fraction(train, options_.files.valid_fraction, options_.seed)
                                          : read(options_.files.valid, "valid");
    model_.task = kind_.make(settings, model_.tokenizer);
    data_.train = tasks::make_split(*model_.task, std::move(train));
    for (const std::string& sentence : single_example_classes(data_.train, settings)) warn(sentence);
    data_.valid = tasks::make_split(*model_.task, std::move(valid));
    add_split("train", data_.train);
    add_split("valid", data_.valid);
    identity_ = {{"train", records_identity(data_.train.records)}, {"valid", records_identity(data_.valid.records)}};
    if (!options_.files.test.empty()) {
      std::vector<data::Record> test = read(options_.files.test, "test");
      test_ = tasks::make_split(*model_.task, std::move(test));
      add_split("test", *test_);
    }
  }

  // Counts and baselines of a split, and how many of its records are in the training file.
  void add_split(const std::string& name, const Split& split) {
    report_["records"][name] = split.records.size();
    if (name == "train") return;
    const int64_t shared = count_shared(data_.train.records, split.records, kind_, model_.settings);
    report_["shared_with_train"][name] = shared;
    if (shared > 0) {
      warn(fmt::format("warning: {} of the {} records of the {} file have inputs that are also in the train file",
                       shared, split.records.size(), name));
    }
    report_["baseline"][name] =
        model_.task->metrics(split.with(model_.task->baseline(data_.train.examples, split.examples)));
    std::vector<Scores> bag_of_words = model_.task->bag_of_words(data_.train.examples, split.examples);
    if (!bag_of_words.empty())
      report_["bag_of_words"][name] = model_.task->metrics(split.with(std::move(bag_of_words)));
  }

  void choose_metric() {
    const nlohmann::json& known = report_["baseline"]["valid"];
    std::vector<std::string> names;
    for (const char* name : kind_.metrics) {
      if (known.contains(name)) names.emplace_back(name);
    }
    std::string& metric = model_.settings.metric;
    if (metric.empty()) metric = names.front();
    if (std::find(names.begin(), names.end(), metric) == names.end()) {
      fail("finetune", "the metric must be one of {}, got {}", fmt::join(names, ", "), io::printable(metric));
    }
    report_["metric"] = metric;
  }

  // Everything that affects a run's numbers except its rate and seed, which may be added later, like a test file.
  void keep_settings() {
    settings_ = {{"task", tasks::to_json(model_.settings)},
                 {"model", data::model_identity(options_.model_dir, options_.load)},
                 {"data", identity_},
                 {"epochs", options_.epochs},
                 {"batch", options_.batch},
                 {"schedule", name_of(kSchedules, options_.schedule)},
                 {"warmup", options_.warmup},
                 {"weight_decay", options_.weight_decay},
                 {"clip_norm", options_.clip_norm},
                 {"label_smoothing", options_.label_smoothing},
                 {"precision", name_of(kPrecisions, options_.precision)},
                 {"evaluate_every_steps", options_.evaluate_every_steps},
                 {"patience", options_.patience}};
    const std::string& pooling = model_.model->config().classifier_pooling;
    if (pooling != ModelConfig{}.classifier_pooling) settings_["classifier_pooling"] = pooling;
    if (!ranks_.is_first()) return;
    directory_.emplace(options_.output_dir, RunDirectory::Use::kResume);
    const nlohmann::json before = directory_->kept_settings("run.json", settings_);
    if (!before.contains("task")) {
      fail("finetune", "the output must be a directory of finetune, got {}, which holds another kind of run",
           options_.output_dir);
    }
    const std::string difference = data::first_difference(before, settings_);
    if (difference.empty()) return;
    const bool is_longer = before.is_object() && before.value("epochs", nlohmann::json()) != settings_["epochs"];
    fail("finetune", "the settings must be those of the runs in {}, got {}{}", options_.output_dir, difference,
         is_longer ? "; to train a finished model further, give it as --model of another --output" : "");
  }

  void train(double rate, uint64_t seed, const InterruptScope& interrupt) {
    const std::string directory = run_dir(rate, seed), result = directory + "/result.json";
    FinetuneRun run{.learning_rate = rate, .seed = seed, .metrics = {}};
    if (io::has_file(result)) {
      series_.skip();
      runs_.push_back(read_run(result, model_.settings.metric));
      remove_temporaries(directory);  // a kill may have come before its last checkpoint was removed
      drop_checkpoints(directory, 0);
      return;
    }
    fs::create_directories(directory);
    const io::Progress::Part part(progress_, series_.begin(fmt::format("learning rate {:g}, seed {}", rate, seed)));
    if (options_.note) options_.note(plot_hint(directory));
    if (!finetune_run(options_, data_, *tokenizer_files_, model_, directory, interrupt, progress_, run)) return;
    io::write_file(result, to_json(run).dump(2) + "\n");
    drop_checkpoints(directory, 0);
    progress_.finish();
    if (options_.note) {
      options_.note(fmt::format("best {} {}, at step {}", model_.settings.metric,
                                run.metrics.at(model_.settings.metric).dump(), run.best_step));
    }
    series_.end();
    runs_.push_back(std::move(run));
  }

  std::string run_dir(double rate, uint64_t seed) const {
    return fmt::format("{}/lr-{}/seed-{}", options_.output_dir, rate, seed);
  }
  // Writes the chosen model and the report.
  void finish() {
    const std::vector<RateSummary> rates = summaries(runs_, model_.settings.metric);
    for (const RateSummary& rate : rates) {
      report_["rates"].push_back({{"learning_rate", rate.learning_rate},
                                  {"seeds", options_.seeds},
                                  {"mean", number_or_null(rate.mean)},
                                  {"low", number_or_null(rate.low)},
                                  {"high", number_or_null(rate.high)}});
    }
    const FinetuneRun& best = runs_[best_rate(rates).best];
    for (const FinetuneRun& run : runs_) report_["runs"].push_back(to_json(run));
    model_.model = nn::load_model(run_dir(best.learning_rate, best.seed), model_.task->head(), at::kFloat);
    model_.model->to(open_device("finetune", options_.device));
    nlohmann::json& chosen = report_["chosen"];
    chosen = {{"learning_rate", best.learning_rate}, {"seed", best.seed}, {"step", best.best_step}};
    const Split sample = data_.train.sample(kTrainSample);
    report_["train_sample"] = sample.records.size();
    chosen["train"] = measure(sample, "train");
    chosen["valid"] = measure(data_.valid, "valid");
    if (test_) chosen["test"] = measure(*test_, "test");
    nn::save_model(*model_.model, options_.output_dir);
    tokenizer_files_->write(options_.output_dir);
    model_.tokenizer->save_dictionary(options_.output_dir);
    io::write_file(directory_->file(tasks::kTaskFile), tasks::to_json(model_.settings).dump(2) + "\n");
    io::write_file(directory_->file("report.json"), report_.dump(2) + "\n");
    io::write_file(directory_->file("report.md"), markdown_report(report_));
  }

  // Evaluates the chosen model on `split`; the report keeps the confusion matrix of the last split.
  nlohmann::json measure(const Split& split, const std::string& name) {
    tasks::Evaluated evaluated = score_examples(
        model_, split.examples, io::counted(progress_, "evaluating " + name, std::ssize(split.examples)));
    const std::vector<Scored> scored = split.with(std::move(evaluated.scores));
    const auto confusion = model_.task->confusion(scored);
    if (!confusion.empty()) {
      report_["confusion"] = {{"split", name}, {"labels", model_.settings.labels}, {"counts", confusion}};
    }
    return model_.task->metrics(scored);
  }

  void warn(const std::string& text) {
    report_["warnings"].push_back(text);
    if (options_.note) options_.note(text);
  }

  const FinetuneOptions& options_;
  const Ranks& ranks_;  // they share the runs; the first rank chooses the model and writes the report
  io::Progress& progress_;
  const tasks::TaskKind& kind_;
  std::optional<RunDirectory> directory_;  // of the first rank; made after the input was checked
  TaskModel model_;
  std::optional<TokenizerFiles> tokenizer_files_;
  FinetuneData data_;
  std::optional<Split> test_;
  nlohmann::json identity_ = nlohmann::json::object();  // of the records of each split that runs depend on
  nlohmann::json settings_, report_;
  std::vector<FinetuneRun> runs_;
  RunSeries series_;
};

}  // namespace

FinetuneReport finetune(const FinetuneOptions& options, io::Progress& progress) {
  const Ranks ranks(options.process_group);
  if (ranks.is_first()) return Finetuning(options, ranks, progress).go();
  FinetuneOptions quiet = options;
  quiet.note = nullptr;
  io::Progress silent;
  return Finetuning(quiet, ranks, silent).go();
}

}  // namespace rf::train
