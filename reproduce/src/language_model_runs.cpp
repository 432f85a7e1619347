// Runs of the trained experiments (language_model_runs.h).
#include "language_model_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>

#include "rf/data/identity.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/train/job.h"
#include "rf/train/pretrain.h"
#include "rf/train/training_curve.h"
#include "shared_training.h"
#include "training_record.h"

namespace rf::reproduce {

namespace fs = std::filesystem;

void to_json(nlohmann::json& json, const Design& design) {
  json = {{"runs", design.runs}, {"corpus", design.corpus}, {"seeds", design.seeds}};
  if (!design.search.is_empty()) {
    json["search"] = design.search;
  }
  if (!design.run_files.empty()) {
    json["run_files"] = design.run_files;
    return;
  }
  json["arms"] = design.arms;
  json["run"] = design.run;
  if (!design.length_factors.empty()) json["length_factors"] = design.length_factors;
}

void to_json(nlohmann::json& json, const Trained& settings) {
  const Design& design = settings.design;
  json = {{"files", design.corpus.all_files()}, {"seeds", design.seeds}, {"design", design}};
}

train::RunConfig masked_lm_run(Scale scale, int64_t small_steps) {
  train::RunConfig run = train::compare_defaults();
  run.stages.front().steps = by_scale(scale, int64_t{60}, small_steps);
  run.schedule.warmup_steps = by_scale(scale, 15, 100);
  run.evaluate_batches = by_scale(scale, 5, 40);
  if (scale == Scale::kPaper) {
    run.model = {};
    run.model.family = Family::kBert;
    run.model.max_position_embeddings = 512;
    run.stages = {{.max_length = 512, .batch = 64, .steps = 100000, .accumulate = 1}};
    run.schedule = {.kind = train::Schedule::kConstant, .learning_rate = 1e-5, .warmup_steps = 0, .points = {}};
    run.log_every_steps = 100;
    run.checkpoint_every_steps = 1000;
  }
  return run;
}

nlohmann::json byte_run(Scale scale, const nlohmann::json& encoding, const nlohmann::json& attention, ByteRows small,
                        int64_t small_steps) {
  const bool published = scale == Scale::kPaper;
  const int64_t width = published ? 768 : 128;
  const int64_t length = published ? 1024 : small.tokens, batch = published ? 128 : small.batch;
  nlohmann::json run = {
      {"objective", "causal"},
      {"model",
       {{"hidden_size", width},
        {"num_hidden_layers", published ? 12 : 4},
        {"num_attention_heads", published ? 12 : 4},
        {"intermediate_size", 4 * width},
        {"max_position_embeddings", length},
        {"position_encoding", encoding},
        {"attention", attention}}},
      {"schedule",
       {{"kind", "constant"}, {"learning_rate", published ? 1e-4 : 1e-3}, {"warmup_steps", by_scale(scale, 2, 100)}}},
      {"evaluate_batches", by_scale(scale, 2, 40)}};
  run["stages"] = nlohmann::json::array({{{"max_length", length},
                                          {"batch", batch},
                                          {"steps", published ? 100000 : by_scale(scale, int64_t{8}, small_steps)}}});
  run["log_every_steps"] = published ? 100 : by_scale(scale, 2, 10);
  return to_json(train::parse_run_config(run));
}

Design convergence_design(Scale scale) {
  return {.runs = "convergence",
          .corpus = book_corpus(scale),
          .seeds = seeds_of(scale),
          .arms = {"none", kScaledSinusoids, "learned", "rope"},
          .run = to_json(masked_lm_run(scale, 10000)),
          .search = rate_search(scale, 1500)};
}

Design chinese_design(Scale scale) {
  return {.runs = "chinese",
          .corpus = law_corpus(scale),
          .seeds = seeds_of(scale),
          .arms = {"learned", "rope"},
          .run = to_json(masked_lm_run(scale, 600))};
}

namespace {

// Members of the outcome of a run by file.
constexpr const char *kDivergedAt = "diverged_at_step", *kHeldOutLoss = "held_out_loss";

bool has_weights(const std::string& directory) {
  return fs::exists(directory + "/model.safetensors");
}

[[noreturn]] void fail_without_weights(const std::string& directory, const WeightsReading* reading) {
  fail("reproduce", "{} must have its weights{}: remove it and its record to train it again", directory,
       reading == nullptr ? ", got a run without model.safetensors"
                          : fmt::format(", or what {} reads of them in its record, got neither", reading->name));
}

// From the run's record, or taken now; null: nothing is to be read, or the run has diverged.
nlohmann::json reading_of(const WeightsReading* reading, const train::CompareRun& run, const std::string& data_dir) {
  if (reading == nullptr || run.diverged_at > 0) return {};
  nlohmann::json values = kept_reading(run.directory, reading->name, reading->settings);
  if (!values.is_null()) return values;
  if (!has_weights(run.directory)) fail_without_weights(run.directory, reading);
  values = reading->take(run, data_dir);
  keep_reading(run.directory, reading->name, reading->settings, values);
  return values;
}

// A comparison that records the training of its runs, and what is read of them.
train::CompareReport compare_recorded(const Context& context, const std::string& data_dir, const std::string& directory,
                                      const nlohmann::json& run, train::CompareOptions options,
                                      const WeightsReading* reading) {
  fs::create_directories(fs::path(directory).parent_path());
  options.config_path = directory + ".run.json";
  io::write_file(options.config_path, run.dump(2) + "\n");
  options.data_dir = data_dir;
  options.output_dir = directory;
  std::optional<TrainingRecord> record;
  options.before = [&](const std::string& run_dir, const nlohmann::json& run_file) {
    record.emplace(context, run_dir, run_file, data::identity(data_dir));
  };
  options.after = [&](bool is_complete) { record->end(is_complete); };
  options.measured = [&](const train::CompareRun& run) { reading_of(reading, run, data_dir); };
  options.note = context.note;
  return train::compare(options, context.progress);
}

// Runs of one arm of a design with one learning rate; without one, with the run file's.
class ArmRuns {
 public:
  // `reading`: what is read of whole runs, if not nullptr.
  ArmRuns(const Context& context, const Design& design, std::string data_dir, std::string arm,
          const WeightsReading* reading)
      : context_(context), design_(design), data_dir_(std::move(data_dir)), arm_(std::move(arm)), reading_(reading) {}

  // The runs of all seeds with the rate that the design's search chooses, or without one.
  TrainedArms go() const {
    std::optional<double> rate;
    if (!design_.search.is_empty()) {
      const ChosenRate chosen = search_rate(
          context_, design_.search, arm_, [&](double tried) { return tried_short(tried); },
          [&](double tried) { return tried_whole(tried); });
      if (chosen.signal != 0) return {.data_dir = data_dir_, .runs = {}, .signal = chosen.signal};
      rate = chosen.rate;
    }
    return train(whole(rate), design_.seeds);
  }

 private:
  struct Plan {
    std::string directory;
    nlohmann::json run;
    std::vector<int64_t> lengths;
    bool is_whole = false;
  };

  nlohmann::json run_file(std::optional<double> rate) const {
    nlohmann::json run = design_.run_files.empty() ? design_.run : design_.run_files.at(arm_);
    if (rate) run["schedule"]["learning_rate"] = *rate;
    return run;
  }

  Plan whole(std::optional<double> rate) const {
    const std::string runs = fmt::format("{}/runs/{}", context_.shared_dir, design_.runs);
    return {rate ? fmt::format("{}/{:g}", runs, *rate) : runs, run_file(rate), design_.length_factors, true};
  }

  TriedRun tried_short(double rate) const {
    if (context_.note) context_.note(fmt::format("{}: a short run at the rate {:g}", arm_, rate));
    Plan plan{fmt::format("{}/runs/{}-rates/{:g}", context_.shared_dir, design_.runs, rate), run_file(rate), {}};
    for (nlohmann::json& stage : plan.run.at("stages")) stage["steps"] = design_.search.steps;
    return tried(plan, design_.search.seed);
  }

  TriedRun tried_whole(double rate) const {
    if (context_.note) context_.note(fmt::format("{}: the first seed at the rate {:g}", arm_, rate));
    return tried(whole(rate), design_.seeds.front());
  }

  // A run whose loss is not finite has no loss.
  TriedRun tried(const Plan& plan, uint64_t seed) const {
    const TrainedArms trained = train(plan, {seed});
    if (trained.signal != 0) return {.signal = trained.signal};
    const train::CompareRun& run = trained.runs.front();
    return {.directory = run.directory, .seed = seed, .loss = held_out_loss(run)};
  }

  // Weights of short runs are not read.
  const WeightsReading* reading_for(const Plan& plan) const { return plan.is_whole ? reading_ : nullptr; }

  bool needs_weights(const Plan& plan, const std::string& directory) const {
    if (!plan.is_whole || reading_ == nullptr) return plan.is_whole;
    return kept_reading(directory, reading_->name, reading_->settings).is_null();
  }

  TrainedArms train(const Plan& plan, const Seeds& seeds) const {
    return design_.run_files.empty() ? train_encoding(plan, seeds) : train_file(plan, seeds);
  }

  TrainedArms train_encoding(const Plan& plan, const Seeds& seeds) const {
    train::CompareOptions options;
    options.arms = {arm_};
    options.seed = seeds.front();
    options.seeds = std::ssize(seeds);
    options.length_factors = plan.lengths.empty() ? std::vector<int64_t>{1} : plan.lengths;
    train::CompareReport report =
        compare_recorded(context_, data_dir_, plan.directory, plan.run, options, reading_for(plan));
    return {.data_dir = data_dir_, .runs = std::move(report.runs), .signal = report.signal};
  }

  struct FileRun {
    std::optional<double> loss = {};  // held out
    int64_t diverged_at = 0;
    int signal = 0;
  };

  // Trains one run by its file unless it is finished. Where rates are searched for, one that diverges is finished,
  // without a loss.
  FileRun train_run_file(const Plan& plan, const std::string& directory, uint64_t seed) const {
    nlohmann::json run = plan.run;
    if (run.contains("model")) run["model"].erase("vocab_size");  // comes from the data
    const std::string data = data::identity(data_dir_);
    const nlohmann::json kept = finished_outcome(directory, run, data);
    if (kept.contains(kDivergedAt)) return {.diverged_at = kept[kDivergedAt]};
    if (kept.contains(kHeldOutLoss)) {
      if (needs_weights(plan, directory) && !has_weights(directory)) {
        fail_without_weights(directory, reading_for(plan));
      }
      return {.loss = kept[kHeldOutLoss]};
    }
    train::PretrainOptions options;
    options.data_dir = data_dir_;
    options.seed = seed;
    options.note = context_.note;
    std::optional<TrainingRecord> record;
    if (!has_weights(directory)) record.emplace(context_, directory, run, data);
    try {
      const train::PretrainReport report = train::pretrain_part(directory, run, options, context_.progress);
      if (record) record->end(report.is_complete);
      if (record && report.is_complete) record->keep({{kHeldOutLoss, report.evaluation.loss}});
      return {.loss = report.evaluation.loss, .signal = report.signal};
    } catch (const train::Diverged& error) {
      if (design_.search.is_empty() || !record) throw;
      if (context_.note) context_.note(fmt::format("{} has diverged and has no loss: {}", directory, error.what()));
      record->end(true);
      record->keep({{kDivergedAt, error.step}});
      return {.diverged_at = error.step};
    }
  }

  TrainedArms train_file(const Plan& plan, const Seeds& seeds) const {
    TrainedArms trained{.data_dir = data_dir_, .runs = {}};
    for (const uint64_t seed : seeds) {
      const std::string directory = fmt::format("{}/{}/seed-{}", plan.directory, arm_, seed);
      if (context_.note) context_.note(fmt::format("{}, seed {}", arm_, seed));
      const FileRun run = train_run_file(plan, directory, seed);
      trained.signal = run.signal;
      if (trained.signal != 0) return trained;
      trained.runs.push_back(
          {.arm = arm_, .seed = seed, .losses = {run.loss}, .diverged_at = run.diverged_at, .directory = directory});
      reading_of(reading_for(plan), trained.runs.back(), data_dir_);
    }
    return trained;
  }

  const Context& context_;
  const Design& design_;
  std::string data_dir_, arm_;
  const WeightsReading* reading_;
};

}  // namespace

TrainedArms train_arms(const Context& context, const Design& design, std::vector<std::string> arms,
                       const WeightsReading* reading) {
  if (arms.empty()) {
    arms = design.arms;
    for (const auto& [arm, run] : design.run_files) arms.push_back(arm);
  }
  TrainedArms all{.data_dir = prepared(context, design.corpus), .runs = {}};
  auto trained = train_shared(context, design.runs, arms, [&](const Context& of_arm, const std::string& arm) {
    TrainedArms runs = ArmRuns(of_arm, design, all.data_dir, arm, reading).go();
    if (runs.signal != 0) return runs;
    for (const train::CompareRun& run : runs.runs) {
      log_training(of_arm, run.arm, run.seed, run.directory);
      runs.readings[run.directory] = reading_of(reading, run, all.data_dir);
    }
    return runs;
  });
  all.signal = trained.signal;
  for (TrainedArms& of_arm : trained.arms) {
    std::move(of_arm.runs.begin(), of_arm.runs.end(), std::back_inserter(all.runs));
    all.readings.merge(of_arm.readings);
  }
  return all;
}

double held_out_loss(const train::CompareRun& run) {
  return run.losses.at(0).value_or(std::numeric_limits<double>::infinity());
}

void add_measures(Result& result, const std::vector<train::CompareRun>& runs) {
  for (const train::CompareRun& run : runs) {
    if (run.diverged_at > 0) continue;
    const auto add = [&](const char* name, double value) {
      result.measures.push_back({name, run.arm, run.seed, value});
    };
    add(measures::kHeldOutLoss, held_out_loss(run));
    add(measures::kLateLoss, late_mean(loss_curve(run)));
  }
}

void add_steps(Result& result, const std::vector<train::CompareRun>& runs, const std::string& arm,
               const std::string& baseline, const char* measure) {
  for (const train::CompareRun& own : runs_of(runs, arm)) {
    for (const train::CompareRun& other : runs_of(runs, baseline)) {
      if (other.seed != own.seed || own.diverged_at + other.diverged_at > 0) continue;
      result.measures.push_back({measure, arm, own.seed, steps_ratio(loss_curve(own), loss_curve(other))});
    }
  }
}

Curve loss_curve(const train::CompareRun& run) {
  train::TrainingCurve curve = train::training_curve(run.directory);
  if (run.diverged_at > 0) {
    curve.steps.push_back(run.diverged_at);
    curve.losses.push_back(std::numeric_limits<double>::infinity());
  }
  return {{curve.steps.begin(), curve.steps.end()}, std::move(curve.losses)};
}

Curves loss_curves(const std::vector<train::CompareRun>& runs) {
  Curves curves;
  for (const train::CompareRun& run : runs) curves[run.arm].push_back(loss_curve(run));
  return curves;
}

Losses held_out_losses(const std::vector<train::CompareRun>& runs) {
  Losses losses;
  for (const train::CompareRun& run : runs) losses[run.arm].push_back(held_out_loss(run));
  return losses;
}

std::vector<train::CompareRun> runs_of(const std::vector<train::CompareRun>& runs, const std::string& arm) {
  std::vector<train::CompareRun> chosen;
  for (const train::CompareRun& run : runs) {
    if (run.arm == arm) chosen.push_back(run);
  }
  return chosen;
}

}  // namespace rf::reproduce
