// The Chinese models of the paper's Table 3, characters or words as tokens, and three position encodings: BERT, WoBERT,
// NEZHA and RoFormer. Each is the same body, trained on the same laws for the same number of steps with whole-word
// masking, and tuned on reviews of at most 128 tokens. On such short texts the paper has RoFormer equal to WoBERT
// (C-22).
#include <fmt/format.h>

#include "data_sets.h"
#include "experiment.h"
#include "language_model_runs.h"
#include "rf/io/files.h"
#include "statistics.h"
#include "tuned_models.h"

namespace rf::reproduce {

namespace {

struct ChineseModelsSettings {
  Files files = {};
  Seeds seeds;
  std::map<std::string, Design> designs;  // by tokens
  TunedTask task;
  Tuning tuning;
  RF_MEMBERS(ChineseModelsSettings, files, seeds, designs, task, tuning)
};

struct Model {
  const char* name;
  const char* tokens;  // "characters" or "words"
  const char* family;
  nlohmann::json encoding;
};

const std::vector<Model>& models() {
  static const std::vector<Model> kModels = {
      {"BERT", "characters", "bert", "learned"},
      {"WoBERT", "words", "bert", "learned"},
      {"NEZHA", "characters", "bert", {{"type", "nezha"}, {"max_relative_position", 64}}},
      {"RoFormer", "words", "roformer", "rope"},
  };
  return kModels;
}

Corpus corpus_of(Scale scale, const std::string& tokens) {
  Corpus corpus = law_corpus(scale);
  corpus.name += "-" + tokens;
  corpus.dictionary = kDictionary;
  if (tokens == "characters") return corpus;
  corpus.pipeline = "roformer";
  if (scale == Scale::kPaper) {  // WoBERT's vocabulary, and RoFormer's
    corpus.tokens = "vocabs/roformer_chinese_base_vocab.txt";
  } else {
    corpus.add_words = by_scale(scale, 100, 8000);
  }
  return corpus;
}

// kPaper: R-CFG-5, without its warm start and its stages.
nlohmann::json run_of(Scale scale, const Model& model) {
  nlohmann::json run = to_json(masked_lm_run(scale, 600));
  run["mask"]["unit"] = "whole-word";
  run["model"]["family"] = model.family;
  run["model"]["position_encoding"] = model.encoding;
  run["model"].erase("model_type");
  run["model"].erase("vocab_size");  // comes from the data
  return run;
}

Design design_of(Scale scale, const std::string& tokens) {
  Design design{.runs = "chinese-models", .corpus = corpus_of(scale, tokens), .seeds = seeds_of(scale)};
  for (const Model& model : models()) {
    if (model.tokens == tokens) design.run_files[model.name] = run_of(scale, model);
  }
  return design;
}

ChineseModelsSettings chinese_models_settings(Scale scale) {
  ChineseModelsSettings settings{
      .seeds = seeds_of(scale),
      .designs = {{"characters", design_of(scale, "characters")}, {"words", design_of(scale, "words")}},
      .task = {.name = "ChnSentiCorp",
               .task = "classification",
               .metric = "accuracy",
               .columns = {{"text", "text"}, {"label", "label"}},
               .train = "zh_cls/chnsenticorp_train.tsv",
               .valid = "zh_cls/chnsenticorp_dev.tsv",
               .test = "zh_cls/chnsenticorp_test.tsv",
               .most = by_scale(scale, 256, 0)},
      .tuning = {
          .epochs = by_scale(scale, 1, 3), .batch = 32, .learning_rates = tuning_rates(scale), .max_length = 128}};
  if (scale == Scale::kPaper) settings.tuning.learning_rates = {2e-5, 3e-5, 4e-5, 5e-5};
  for (const auto& [tokens, design] : settings.designs) add_files(settings.files, design.corpus.all_files());
  add_files(settings.files, settings.task.files());
  return settings;
}

double held_out_tokens(const TrainedArms& trained) {
  return io::read_json(trained.data_dir + "/data.json").at("splits").at("valid").at("tokens");
}

Result run_chinese_models(const ChineseModelsSettings& settings, const Context& context) {
  std::map<std::string, TrainedArms> pretrained;  // by tokens
  for (const auto& [tokens, design] : settings.designs) {
    pretrained[tokens] = train_arms(context, design);
    if (pretrained[tokens].signal != 0) return {.columns = {}, .rows = {}, .signal = pretrained[tokens].signal};
  }
  const train::TaskFiles files = task_files(context, settings.task);
  Result result{.columns = {"model", "tokens", "held-out loss", "lowest", "highest", "for a character", "accuracy",
                            "lowest", "highest", "baseline", "bag of words", "training records"},
                .rows = {}};
  std::map<std::string, std::vector<double>> accuracies, on_train;
  const std::string measure = "ChnSentiCorp, accuracy";
  for (const Model& model : models()) {
    const TrainedArms& trained = pretrained.at(model.tokens);
    Tuning tuning = settings.tuning;
    if (model.tokens == std::string("words")) tuning.dictionary = kDictionary;
    ArmTuner tuner(context, settings.task, tuning, files);
    Tuned tuned;
    for (const train::CompareRun& body : runs_of(trained.runs, model.name)) {
      if (context.note) context.note(fmt::format("{} on {}, seed {}", model.name, "ChnSentiCorp", body.seed));
      const std::string directory =
          fmt::format("{}/runs/chinese-models/tuned/{}/seed-{}", context.shared_dir, model.name, body.seed);
      const TunedBody own{model.name, body.directory, directory, body.seed};
      for (const TunedBody& each : {random_body(context, own), own}) {
        tuned = tuner.tune(each);
        if (tuned.signal != 0) return {.columns = {}, .rows = {}, .signal = tuned.signal};
        add_tuned(result, measure, each, tuned);
      }
      accuracies[model.name].push_back(tuned.model);
      on_train[model.name].push_back(tuned.train);
      const Curve curve = loss_curve(body);
      result.series.push_back({fmt::format("{}, seed {}", model.name, body.seed), curve.steps, curve.losses});
    }
    const Spread loss = spread(held_out_losses(trained.runs).at(model.name)), accuracy = spread(accuracies[model.name]);
    // A word token covers several character tokens of the same held-out texts.
    const double characters = held_out_tokens(pretrained.at("characters")) / held_out_tokens(trained);
    result.rows.push_back({model.name, model.tokens, loss.mean, loss.low, loss.high, loss.mean / characters,
                           accuracy.mean, accuracy.low, accuracy.high, tuned.baseline, tuned.bag_of_words,
                           spread(on_train[model.name]).mean});
  }
  return result;
}

}  // namespace

Experiment chinese_models() {
  return {.name = "chinese-models",
          .spec = "R-TAB-3",
          .title = "BERT, WoBERT, NEZHA and RoFormer side by side (Table 3)",
          .claims = {"C-22"},
          .expected =
              "On texts of at most 128 tokens RoFormer's accuracy is that of WoBERT, within two points to either side.",
          .budget = "2 minutes per arm and seed, 4 arms, and 10 tunings of 3 minutes for each arm",
          .method = {chinese_models_settings, run_chinese_models},
          .revision = 4,
          .hours = 2.4,
          .exceptions = {"from random weights and in one stage, where the paper's models start from others in stages"}};
}

}  // namespace rf::reproduce
