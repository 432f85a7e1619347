// X-09 (C-20, the paper's Table 2): the models of X-03 and their Chinese counterparts, with BERT's learned table and
// with RoPE, tuned on classes of texts, on paraphrases and on graded similarity. Where GLUE's test files are not
// public, this measures the valid file, which also chose the epoch.
#include <fmt/format.h>

#include "experiment.h"
#include "language_model_runs.h"
#include "statistics.h"
#include "tuned_models.h"

namespace rf::reproduce {

namespace {

constexpr double kBound = 0.01;

nlohmann::json tasks(Scale scale) {
  const int64_t max_records = by_scale(scale, 256, 0);
  const nlohmann::json pair = {{"text", "sentence1"}, {"pair", "sentence2"}, {"label", "label"}};
  const nlohmann::json graded = {{"text", "sentence1"}, {"pair", "sentence2"}, {"label", "score"}};
  nlohmann::json all = {{{"name", "SST-2"},
                         {"pretrained", "english"},
                         {"task", "classification"},
                         {"metric", "accuracy"},
                         {"columns", {{"text", "sentence"}, {"label", "label"}}},
                         {"train", "glue/sst2_train.tsv"},
                         {"valid", "glue/sst2_dev.tsv"}},
                        {{"name", "MRPC"},
                         {"pretrained", "english"},
                         {"task", "classification"},
                         {"metric", "f1"},
                         {"columns", pair},
                         {"train", "glue/mrpc_train.tsv"},
                         {"valid", "glue/mrpc_dev.tsv"},
                         {"test", "glue/mrpc_test.tsv"}},
                        {{"name", "STS-B"},
                         {"pretrained", "english"},
                         {"task", "regression"},
                         {"metric", "spearman"},
                         {"columns", graded},
                         {"train", "glue/stsb_train.tsv"},
                         {"valid", "glue/stsb_dev.tsv"},
                         {"test", "glue/stsb_test.tsv"}},
                        {{"name", "ChnSentiCorp"},
                         {"pretrained", "chinese"},
                         {"task", "classification"},
                         {"metric", "accuracy"},
                         {"columns", {{"text", "text"}, {"label", "label"}}},
                         {"train", "zh_cls/chnsenticorp_train.tsv"},
                         {"valid", "zh_cls/chnsenticorp_dev.tsv"},
                         {"test", "zh_cls/chnsenticorp_test.tsv"}},
                        {{"name", "AFQMC"},
                         {"pretrained", "chinese"},
                         {"task", "classification"},
                         {"metric", "accuracy"},
                         {"columns", pair},
                         {"train", "zh_pairs/afqmc_train.tsv"},
                         {"valid", "zh_pairs/afqmc_dev.tsv"}}};
  for (nlohmann::json& task : all) task["most"] = max_records;
  return all;
}

// R-CFG-3 at scale paper. A small model of random weights needs a higher rate than its four.
nlohmann::json tuning(Scale scale) {
  nlohmann::json tuning = {{"max_length", 128}, {"epochs", by_scale(scale, 1, 3)}, {"batch", 32}};
  tuning["learning_rates"] = {5e-4};
  if (scale == Scale::kPaper) {
    tuning["max_length"] = 512;
    tuning["learning_rates"] = {2e-5, 3e-5, 4e-5, 5e-5};
  }
  return tuning;
}

nlohmann::json settings(Scale scale) {
  const nlohmann::json designs = {{"english", convergence_design(scale)}, {"chinese", chinese_design(scale)}};
  nlohmann::json files = nlohmann::json::array();
  const auto add = [&](const nlohmann::json& file) {
    if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
  };
  for (const nlohmann::json& design : designs) {
    for (const nlohmann::json& file : files_of_design(design)) add(file);
  }
  for (const nlohmann::json& task : tasks(scale)) {
    for (const char* split : {"train", "valid", "test"}) {
      if (task.contains(split)) add(task.at(split));
    }
  }
  return {{"files", files},        {"seeds", seeds_of(scale)}, {"designs", designs},
          {"tasks", tasks(scale)}, {"tuning", tuning(scale)},  {"bound", kBound}};
}

Result run(const Context& context) {
  const nlohmann::json& settings = context.settings;
  std::map<std::string, TrainedArms> pretrained;
  for (const auto& [name, design] : settings.at("designs").items()) {
    pretrained[name] = train_arms(context, design);
    if (pretrained[name].signal != 0) return {.columns = {}, .rows = {}, .signal = pretrained[name].signal};
  }
  Result result{
      .columns = {"task", "metric", "measured on", "encoding", "mean", "lowest", "highest", "baseline", "bag of words"},
      .rows = {}};
  std::vector<TaskScores> all;
  for (const nlohmann::json& task : settings.at("tasks")) {
    const std::string name = task.at("name");
    const train::TaskFiles files = task_files(context, task);
    TaskScores& scores = all.emplace_back(TaskScores{.task = name, .other = {}, .own = {}});
    const TrainedArms& bodies = pretrained.at(task.at("pretrained").get<std::string>());
    for (const std::string arm : {"learned", "rope"}) {
      std::vector<double>& values = arm == "rope" ? scores.own : scores.other;
      for (const train::CompareRun& body : runs_of(bodies.runs, arm)) {
        if (context.note) context.note(fmt::format("{}, {}, seed {}", name, arm, body.seed));
        const std::string directory =
            fmt::format("{}/runs/fine-tuning/{}/{}/seed-{}", context.shared_dir, name, arm, body.seed);
        const Tuned tuned = tune(context, task, settings.at("tuning"), files, body.directory, directory, body.seed);
        if (tuned.signal != 0) return {.columns = {}, .rows = {}, .signal = tuned.signal};
        values.push_back(tuned.model);
        scores.baseline = tuned.baseline;
        scores.bag_of_words = tuned.bag_of_words;
      }
      const Spread spread_of = spread(values);
      result.rows.push_back({name, task.at("metric"), files.test.empty() ? "valid" : "test", arm, spread_of.mean,
                             spread_of.low, spread_of.high, scores.baseline, scores.bag_of_words});
    }
  }
  const Judgement against_bert = not_worse(all, settings.at("bound")), against_baselines = above_baselines(all);
  result.findings = {{"C-20", against_bert.holds, against_bert.figures},
                     {"X-09", against_baselines.holds, against_baselines.figures}};
  return result;
}

}  // namespace

Experiment fine_tuning() {
  return {.name = "fine-tuning",
          .spec = "X-09",
          .title = "Fine-tuning with RoPE and with BERT's learned table (Table 2)",
          .claims = {"C-20"},
          .expected =
              "On every task the mean of RoPE's metric is at most one point below that of the learned table; X-09: it "
              "is above the most frequent class (of numbers, the mean) and above a bag of words.",
          .budget = "20 minutes, without the models of convergence and long-texts",
          .settings = settings,
          .run = run};
}

}  // namespace rf::reproduce
