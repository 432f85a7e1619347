// does a RoFormer that is trained on pairs of similar texts, as RoFormer-Sim is, order other pairs by their
// similarity better than the RoFormer that it started from? No model sees a pair of the Chinese STS-B with its label
// but to choose: the rate, and which vector of the plain model is read, are those that are best on its dev part.
//
// The pairs are questions that people have judged to ask the same. The body is pretrained on the same sets' sentences,
// without labels, and on those of sets for inference, whose sentences are more like those of STS-B. Cosines of counts
// of tokens show what the words alone say.
#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "experiment.h"
#include "language_model_runs.h"
#include "rate_search.h"
#include "rf/train/train_similar.h"
#include "sentence_vectors.h"
#include "training_record.h"

namespace rf::reproduce {

namespace {

constexpr const char *kSim = "RoFormer-Sim", *kPlain = "RoFormer", *kCounts = "counts of tokens";

struct SimilarSettings {
  Files files = {};
  Seeds seeds;
  Design body;
  Files pairs;  // of which those with the label 1 are trained on
  std::string valid, test;
  int64_t epochs = 0, batch = 48, max_length = 64;
  double warmup = 0.1;
  RateSearch search = {};  // of runs of one epoch
  RF_MEMBERS(SimilarSettings, files, seeds, body, pairs, valid, test, epochs, batch, max_length, warmup, search)
};

Files sets(std::initializer_list<const char*> names) {
  Files files;
  for (const char* name : names) files.push_back(fmt::format("zh_pairs/{}.tsv", name));
  return files;
}

SimilarSettings similar_settings(Scale scale) {
  const bool is_tiny = scale == Scale::kTiny;
  const Files pairs = is_tiny ? sets({"afqmc_train"}) : sets({"afqmc_train", "atec_train", "lcqmc_dev", "oppo_dev"});
  Corpus corpus{.name = "zh-sentences", .files = pairs, .tokens = 6000, .valid_fraction = is_tiny ? 0.25 : 0.02};
  if (!is_tiny) add_files(corpus.files, sets({"ocnli_train10k", "cmnli_dev", "snli_zh_dev", "snli_zh_test"}));
  corpus.field = "sentence1";
  Design body{.runs = "zh-sentences", .corpus = corpus, .seeds = seeds_of(scale)};
  body.arms = {"rope"};
  body.run = to_json(masked_lm_run(is_tiny ? Scale::kTiny : Scale::kSmall, 2000));
  SimilarSettings settings{.seeds = body.seeds,
                           .body = body,
                           .pairs = pairs,
                           .valid = sets({"stsb_zh_dev"}).front(),
                           .test = sets({"stsb_zh_test"}).front(),
                           .epochs = by_scale<int64_t>(scale, 1, 3),
                           .batch = by_scale<int64_t>(scale, 8, 48),
                           .search = {.rates = by_scale(scale, std::vector<double>{3e-4}, {1e-4, 3e-4, 1e-3})}};
  add_files(settings.files, corpus.all_files());
  add_files(settings.files, {settings.valid, settings.test});
  return settings;
}

std::vector<JudgedPair> judged_set(const Context& context, const std::string& file) {
  return judged_pairs({.inputs = {context.data_dir + "/" + file}, .quotes = data::Quotes::kText},
                      {.text = "sentence1", .pair = "sentence2"});
}

struct Judged {
  std::vector<JudgedPair> valid, test;
};

struct SimilarRun {
  std::string body, directory;
  int64_t epochs = 1;
  double rate = 0;
  uint64_t seed = 0;
};

// The signal that was received, or 0. A run that finished with the same settings and texts is kept.
int train_similar(const SimilarSettings& settings, const Context& context, const SimilarRun& run) {
  train::SimilarTraining options;
  options.model_dir = run.body;
  options.output_dir = run.directory;
  for (const std::string& file : settings.pairs) options.pairs.push_back(context.data_dir + "/" + file);
  options.columns = {{"text", "sentence1"}, {"pair", "sentence2"}, {"label", "label"}};
  options.label = "1";
  options.quotes = data::Quotes::kText;
  options.epochs = run.epochs;
  options.batch = settings.batch;
  options.max_length = settings.max_length;
  options.learning_rate = run.rate;
  options.schedule = train::Schedule::kLinear;
  options.warmup = settings.warmup;
  options.seed = run.seed;
  options.note = context.note;
  std::optional<TrainingRecord> record;
  if (!std::filesystem::exists(run.directory + "/report.json")) {
    record.emplace(
        context, run.directory,
        nlohmann::json{{"body", "rope"}, {"epochs", run.epochs}, {"schedule", {{"learning_rate", run.rate}}}});
  }
  const train::SimilarTrainingReport report = train::train_similar(options, context.progress);
  if (record) record->end(report.is_complete);
  return report.signal;
}

ChosenRate rate_of(const SimilarSettings& settings, const Context& context, const std::string& body,
                   const std::vector<JudgedPair>& valid) {
  return search_rate(context, settings.search, kSim, [&](double rate) -> TriedRun {
    if (context.note) context.note(fmt::format("similar texts: one epoch at the rate {:g}", rate));
    const std::string directory = fmt::format("{}/runs/similar-texts-rates/{:g}", context.shared_dir, rate);
    const int signal = train_similar(
        settings, context, {.body = body, .directory = directory, .rate = rate, .seed = settings.search.seed});
    if (signal != 0) return {.signal = signal};
    const double correlation = correlation_of_cosines(directory, SentenceVector::kPooler, valid, settings.max_length);
    return {.directory = directory, .seed = settings.search.seed, .loss = -correlation};
  });
}

Result run_similar_texts(const SimilarSettings& settings, const Context& context) {
  const Judged judged{judged_set(context, settings.valid), judged_set(context, settings.test)};
  const TrainedArms bodies = train_arms(context, settings.body);
  const auto ended = [](int signal) { return Result{.columns = {}, .rows = {}, .signal = signal}; };
  if (bodies.signal != 0) return ended(bodies.signal);
  const ChosenRate chosen = rate_of(settings, context, bodies.runs.front().directory, judged.valid);
  if (chosen.signal != 0) return ended(chosen.signal);
  Result result{.columns = {"model", "vector", "seed", "dev", "test"}, .rows = {}};
  for (const train::CompareRun& body : bodies.runs) {
    const std::string directory = fmt::format("{}/runs/similar-texts/seed-{}", context.shared_dir, body.seed);
    if (context.note) context.note(fmt::format("similar texts, seed {}", body.seed));
    const int signal = train_similar(settings, context,
                                     {.body = body.directory,
                                      .directory = directory,
                                      .epochs = settings.epochs,
                                      .rate = chosen.rate,
                                      .seed = body.seed});
    if (signal != 0) return ended(signal);
    log_training(context, kSim, body.seed, directory);
    const auto on = [&](const std::string& model_dir, SentenceVector vector, const std::vector<JudgedPair>& pairs) {
      return correlation_of_cosines(model_dir, vector, pairs, settings.max_length);
    };
    const auto add = [&](const char* arm, const char* name, const std::string& model_dir, SentenceVector vector,
                         double valid) {
      const double test = on(model_dir, vector, judged.test);
      result.rows.push_back({arm, name, body.seed, valid, test});
      result.measures.push_back({measures::kSimilarity, arm, body.seed, test});
    };
    using enum SentenceVector;
    add(kSim, "pooler", directory, kPooler, on(directory, kPooler, judged.valid));
    const double mean = on(body.directory, kMeanOfTokens, judged.valid);
    const double first = on(body.directory, kFirstToken, judged.valid);
    if (mean >= first) {
      add(kPlain, "mean of tokens", body.directory, kMeanOfTokens, mean);
    } else {
      add(kPlain, "[CLS]", body.directory, kFirstToken, first);
    }
    add(kCounts, "counts", body.directory, kTokenCounts, on(body.directory, kTokenCounts, judged.valid));
  }
  return result;
}

}  // namespace

Experiment similar_texts() {
  return {.name = "similar-texts",
          .spec = "X-21",
          .title = "Does training on pairs of similar texts make vectors that order other pairs?",
          .claims = {},
          .expected =
              "X-21: on the test part of the Chinese STS-B, Spearman's correlation of RoFormer-Sim's cosines is higher "
              "by a hundredth than that of the RoFormer it started from.",
          .budget = "7 minutes for a body and 7 for its training on pairs, 3 seeds, and 3 minutes for each rate",
          .method = {similar_settings, run_similar_texts},
          .hours = 0.9,
          .exceptions = {"at scale paper the same as at small: the published model was trained on pairs that are not "
                         "public"}};
}

}  // namespace rf::reproduce
