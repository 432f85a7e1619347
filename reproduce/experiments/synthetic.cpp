// what each encoding of the table can express apart from language, on tasks whose rows are made here
// (synthetic_tasks.h). Each task has a model of its own for each encoding and seed.
//
// A finished run is a file, <scale>/runs/synthetic/<task>/<encoding>/<rate>/seed-<n>/result.json, which is kept
// while its settings are the same. A run that a signal ended begins again.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "encoding_arms.h"
#include "experiment.h"
#include "rate_search.h"
#include "rf/io/files.h"
#include "rf/train/compare.h"
#include "rf/train/job.h"
#include "rf/train/labelled_rows.h"
#include "shared_training.h"
#include "statistics.h"
#include "synthetic_tasks.h"
#include "training_record.h"

namespace rf::reproduce {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kWidth = 64, kHeads = 2;

struct SyntheticSettings {
  Seeds seeds;
  std::vector<std::string> arms;
  std::vector<SyntheticTask> tasks;
  nlohmann::json run;
  std::vector<int64_t> lengths;  // the training length, and those that no row had in training
  int64_t held_out_rows;
  RateSearch search;
  RF_MEMBERS(SyntheticSettings, seeds, arms, tasks, run, lengths, held_out_rows, search)
};

nlohmann::json run_file(Scale scale) {
  const nlohmann::json run = {
      {"objective", "causal"},
      {"precision", "float32"},
      {"model",
       {{"hidden_size", kWidth},
        {"num_hidden_layers", 2},
        {"num_attention_heads", kHeads},
        {"intermediate_size", 4 * kWidth},
        {"max_position_embeddings", kSyntheticLengths[0]},
        {"hidden_dropout_prob", 0},
        {"attention_probs_dropout_prob", 0}}},
      {"schedule", {{"kind", "linear"}, {"learning_rate", 1e-3}, {"warmup_steps", by_scale(scale, 2, 50)}}},
      {"stages", nlohmann::json::array({{{"max_length", kSyntheticLengths[0]},
                                         {"batch", by_scale(scale, 8, 32)},
                                         {"steps", by_scale(scale, 8, 1000)}}})}};
  return to_json(train::parse_run_config(run));
}

SyntheticSettings synthetic_settings(Scale scale) {
  SyntheticSettings settings{.seeds = seeds_of(scale),
                             .arms = encoding_arms(kWidth / kHeads, kSyntheticLengths[0]),
                             .tasks = synthetic_tasks(),
                             .run = run_file(scale),
                             .lengths = {std::begin(kSyntheticLengths), std::end(kSyntheticLengths)},
                             .held_out_rows = by_scale(scale, 8, 256),
                             .search = rate_search(scale == Scale::kPaper ? Scale::kSmall : scale, 250)};
  if (scale == Scale::kTiny) {
    settings.arms = {"none", "alibi", "rope"};
    settings.search.lower = 1;
  }
  return settings;
}

// A run of an arm on a task.
struct SyntheticRun {
  std::string arm;
  const SyntheticTask* task;
  uint64_t seed;
  double rate;
  int64_t steps;
  std::string directory;
};

struct Finished {
  std::vector<std::optional<train::LabelledScore>> scores;  // by length
  int signal = 0;
};

nlohmann::json settings_of(const SyntheticRun& run, const SyntheticSettings& settings) {
  nlohmann::json of_run = settings.run;
  of_run["seed"] = run.seed;
  of_run["schedule"]["learning_rate"] = run.rate;
  of_run["stages"][0]["steps"] = run.steps;
  of_run["task"] = *run.task;
  of_run["arm"] = run.arm;
  of_run["lengths"] = settings.lengths;
  of_run["held_out_rows"] = settings.held_out_rows;
  return of_run;
}

std::optional<Finished> finished(const std::string& path, const nlohmann::json& settings) {
  if (!fs::exists(path)) return std::nullopt;
  const nlohmann::json kept = io::read_json(path);
  if (!kept.is_object() || kept.value("settings", nlohmann::json()) != settings) return std::nullopt;
  Finished run;
  for (const nlohmann::json& score : kept.at("scores")) {
    run.scores.emplace_back();
    if (score.is_null()) continue;
    run.scores.back() = {.loss = number_of(score.at("loss")), .accuracy = score.at("accuracy").get<double>()};
  }
  return run;
}

train::RunConfig config_of(const SyntheticRun& run, const SyntheticSettings& settings) {
  train::RunConfig config = train::parse_run_config(settings.run);
  config.model.position_encodings = {train::parse_arm(run.arm)};
  config.model.vocab_size = vocabulary_size(*run.task);
  config.seed = run.seed;
  config.schedule.learning_rate = run.rate;
  config.stages.front().steps = run.steps;
  return config;
}

// Trains a run unless it is finished. One that diverges is finished and has no score.
Finished train_run(const Context& context, const SyntheticSettings& settings, const SyntheticRun& run) {
  const nlohmann::json of_run = settings_of(run, settings);
  const std::string path = run.directory + "/result.json";
  if (const std::optional<Finished> kept = finished(path, of_run)) return *kept;
  if (context.note) {
    context.note(fmt::format("{} on {}, seed {}, rate {:g}", run.arm, run.task->name, run.seed, run.rate));
  }
  const train::RunConfig config = config_of(run, settings);
  train::LabelledRun labelled{.config = config, .rows = {}, .held_out = {}};
  const train::Stage stage = config.stages.front();
  labelled.rows = [&](int64_t step) {
    return synthetic_rows(*run.task, run.seed, step, stage.batch, stage.max_length);
  };
  for (const int64_t tokens : settings.lengths) {
    labelled.held_out.push_back(held_out_synthetic_rows(*run.task, settings.held_out_rows, tokens));
  }
  fs::remove_all(run.directory);
  TrainingRecord record(context, run.directory, of_run);
  train::LabelledReport report;
  try {
    report = train::train_labelled(labelled, context.progress);
  } catch (const train::Diverged& error) {
    if (context.note) context.note(fmt::format("{} has diverged and has no score: {}", run.arm, error.what()));
    report.scores.resize(settings.lengths.size());
  }
  record.end(report.signal == 0);
  if (report.signal != 0) return {.scores = {}, .signal = report.signal};
  nlohmann::json scores = nlohmann::json::array();
  for (const auto& score : report.scores) {
    scores.push_back(score ? nlohmann::json{{"loss", score->loss}, {"accuracy", score->accuracy}} : nlohmann::json());
  }
  fs::create_directories(run.directory);
  io::write_file(path, nlohmann::json{{"settings", of_run},
                                      {"parameters", report.parameters},
                                      {"train_loss", report.train_loss},
                                      {"scores", scores}}
                               .dump(1) +
                           "\n");
  return {.scores = report.scores};
}

std::string file_name(std::string text) {
  std::replace(text.begin(), text.end(), ' ', '-');
  return text;
}

// Rows of each task, for readers: <scale>/runs/synthetic/rows.json.
void write_rows(const Context& context, const SyntheticSettings& settings) {
  nlohmann::json all = nlohmann::json::object();
  const auto lines = [](const std::vector<int64_t>& values, int64_t tokens) {
    nlohmann::json rows = nlohmann::json::array();
    for (auto at = values.begin(); at != values.end(); at += tokens) {
      rows.push_back(std::vector<int64_t>(at, at + tokens));
    }
    return rows;
  };
  for (const SyntheticTask& task : settings.tasks) {
    for (const int64_t tokens : settings.lengths) {
      const train::LabelledRows trained = synthetic_rows(task, settings.seeds.front(), 1, 8, tokens);
      const train::LabelledRows held_out = held_out_synthetic_rows(task, 8, tokens);
      for (const auto& [name, rows] : {std::pair{"training", &trained}, {"held out", &held_out}}) {
        all[task.name][std::to_string(tokens)][name] = {{"ids", lines(rows->ids, tokens)},
                                                        {"labels", lines(rows->labels, tokens)}};
      }
    }
  }
  const std::string directory = context.shared_dir + "/runs/synthetic";
  fs::create_directories(directory);
  io::write_file(directory + "/rows.json", all.dump() + "\n");
}

// The words for each arm on a task, by the method of the verdicts, corrected for the number of arms. `no`: where the
// opposite is shown.
using Answers = std::map<std::string, std::string>;
Answers answers(const std::vector<Contrast>& contrasts, const Result& result, const Seeds& seeds, const char* no) {
  const Verdict judged = judge({.experiment = "synthetic", .claim = "X-20", .parts = contrasts},
                               {.measures = result.measures, .rates = {}, .seeds = seeds});
  Answers by_arm;
  for (size_t i = 0; i < contrasts.size(); ++i) {
    const std::string outcome = judged.checks.at(i).at("outcome");
    by_arm[contrasts[i].arm] = outcome == "holds" ? "yes" : outcome == "fails" ? no : outcome;
  }
  return by_arm;
}

void add_rows(Result& result, const SyntheticSettings& settings, const SyntheticTask& task,
              const std::map<std::string, double>& rates) {
  const int64_t trained_on = settings.lengths.front();
  const std::string seen = accuracy_measure(task.name, trained_on);
  std::vector<Contrast> can, beyond_none;
  std::vector<std::vector<Contrast>> carries(settings.lengths.size() - 1);
  for (const std::string& text : settings.arms) {
    const std::string arm = encoding_of(text);
    can.push_back({.measure = seen, .arm = arm, .above = kCanDo});
    if (arm != "none") beyond_none.push_back({.measure = seen, .arm = arm, .against = "none", .above = kSaysNothing});
    for (size_t i = 1; i < settings.lengths.size(); ++i) {
      carries[i - 1].push_back({.measure = accuracy_change_measure(task.name, settings.lengths[i], trained_on),
                                .arm = arm,
                                .above = -kCarriesOver});
    }
  }
  // What is not learned in these steps may be learned in more.
  const Answers can_do = answers(can, result, settings.seeds, "not learned");
  const Answers says = answers(beyond_none, result, settings.seeds, "no");
  std::vector<Answers> carries_over;
  for (const auto& contrasts : carries) carries_over.push_back(answers(contrasts, result, settings.seeds, "no"));
  const Evidence evidence{.measures = result.measures, .rates = {}};
  for (const std::string& text : settings.arms) {
    const std::string arm = encoding_of(text);
    nlohmann::json row = {arm, task.name, rates.at(arm)};
    for (const int64_t tokens : settings.lengths) {
      const std::vector<double> values = evidence.differences(accuracy_measure(task.name, tokens), arm, "");
      row.push_back(values.empty() ? nlohmann::json() : nlohmann::json(spread(values).mean));
    }
    row.push_back(can_do.at(arm));
    row.push_back(arm == "none" ? nlohmann::json() : nlohmann::json(says.at(arm)));
    // As of X-20: what an arm cannot do it does not carry over either.
    const bool can = can_do.at(arm) == "yes";
    for (const Answers& of_length : carries_over)
      row.push_back(can ? nlohmann::json(of_length.at(arm)) : nlohmann::json());
    result.rows.push_back(row);
  }
}

// An arm on a task, by seed, with the rate that was searched for.
struct SyntheticArm {
  double rate = 0;
  std::vector<std::pair<uint64_t, Finished>> runs;
  int signal = 0;
};

SyntheticArm train_arm(const Context& context, const SyntheticSettings& settings, const SyntheticTask& task,
                       const std::string& text) {
  const std::string arm = encoding_of(text), name = fmt::format("{} on {}", arm, task.name);
  const std::string directory = fmt::format("{}/runs/synthetic/{}/{}", context.shared_dir, file_name(task.name), arm);
  const int64_t steps = train::parse_run_config(settings.run).stages.front().steps;
  const auto whole = [&](double rate, uint64_t seed) -> SyntheticRun {
    return {.arm = text,
            .task = &task,
            .seed = seed,
            .rate = rate,
            .steps = steps,
            .directory = fmt::format("{}/{:g}/seed-{}", directory, rate, seed)};
  };
  const auto tried = [&](const SyntheticRun& run) {
    const Finished done = train_run(context, settings, run);
    TriedRun as_tried{.directory = run.directory, .seed = run.seed, .signal = done.signal};
    if (done.signal == 0 && done.scores.front()) as_tried.loss = done.scores.front()->loss;
    return as_tried;
  };
  const auto try_short = [&](double rate) {
    SyntheticRun run = whole(rate, settings.search.seed);
    run.steps = settings.search.steps;
    run.directory = fmt::format("{}/rate-{:g}", directory, rate);
    return tried(run);
  };
  // A seed decides much here: the one that chooses a rate is none of those that are judged.
  const auto try_whole = [&](double rate) { return tried(whole(rate, settings.search.seed)); };
  const ChosenRate chosen = search_rate(context, settings.search, name, try_short, try_whole);
  SyntheticArm trained{.rate = chosen.rate, .runs = {}, .signal = chosen.signal};
  for (const uint64_t seed : settings.seeds) {
    if (trained.signal != 0) return trained;
    const SyntheticRun run = whole(chosen.rate, seed);
    const Finished& done = trained.runs.emplace_back(seed, train_run(context, settings, run)).second;
    trained.signal = done.signal;
    if (trained.signal == 0) log_training(context, name, seed, run.directory);
  }
  return trained;
}

void add_measures(Result& result, const SyntheticSettings& settings, const SyntheticTask& task, const std::string& arm,
                  const SyntheticArm& trained) {
  const int64_t trained_on = settings.lengths.front();
  for (const auto& [seed, done] : trained.runs) {
    for (size_t i = 0; i < settings.lengths.size(); ++i) {
      if (!done.scores[i]) continue;  // beyond a learned table, or diverged
      const double accuracy = done.scores[i]->accuracy;
      const int64_t tokens = settings.lengths[i];
      result.measures.push_back({accuracy_measure(task.name, tokens), arm, seed, accuracy});
      if (i == 0) continue;
      result.measures.push_back({accuracy_change_measure(task.name, tokens, trained_on), arm, seed,
                                 accuracy - done.scores.front()->accuracy});
    }
  }
}

Result run_synthetic(const SyntheticSettings& settings, const Context& context) {
  write_rows(context, settings);
  Result result{.columns = {"encoding", "task", "learning rate"}, .rows = {}};
  for (const int64_t tokens : settings.lengths) result.columns.push_back(fmt::format("accuracy at {} tokens", tokens));
  result.columns.insert(result.columns.end(), {"can do it", "better than none"});
  for (size_t i = 1; i < settings.lengths.size(); ++i) {
    result.columns.push_back(fmt::format("carries it over to {}", settings.lengths[i]));
  }
  for (const SyntheticTask& task : settings.tasks) {
    const auto trained = train_shared(
        context, "synthetic/" + file_name(task.name), settings.arms,
        [&](const Context& of_arm, const std::string& text) { return train_arm(of_arm, settings, task, text); });
    if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
    std::map<std::string, double> rates;
    for (size_t k = 0; k < settings.arms.size(); ++k) {
      const std::string arm = encoding_of(settings.arms[k]);
      rates[arm] = trained.arms[k].rate;
      add_measures(result, settings, task, arm, trained.arms[k]);
    }
    add_rows(result, settings, task, rates);
  }
  return result;
}

}  // namespace

Experiment synthetic() {
  return {.name = "synthetic",
          .spec = "X-20",
          .title = "What can each encoding express? Copying from an offset, first occurrences, counting",
          .claims = {},
          .expected =
              "X-20: with RoPE a model that copies from an offset which the row names, with an accuracy above 0.95 at "
              "the training length, carries it over to twice the length (lower by less than 0.02). Of every encoding "
              "the table says the same of each task.",
          .budget =
              "3 tasks of half a minute per encoding of the table and seed, 9 seconds for each rate, and a run or more "
              "to choose one",
          .method = {synthetic_settings, run_synthetic},
          .revision = 3,
          .hours = 3.2,
          .exceptions = {"no publication has this battery: scale paper is scale small"},
          .note =
              "A seed that is not judged chooses the rate; where seeds differ much, that is chance. In these rows "
              "mrope is the same function as rope, axial-nd as axial, and log-n as none at the training length: where "
              "those differ, it is by the rate and by rounding.",
          .shares_arms = true};
}

}  // namespace rf::reproduce
