// X-07 (C-21, the paper's Table 4): one model trained in stages of several lengths; after each stage the same held-out
// documents are measured at each length, in rows of their own, as the table has it. The claim is decided by the model
// at the end, on masked tokens that are the same at every length and differ in their context alone.
#include <fmt/format.h>

#include <map>

#include "experiment.h"
#include "language_model_runs.h"
#include "layer_parts.h"
#include "nested_rows.h"
#include "rf/data/split.h"
#include "rf/text/tokenizer.h"
#include "rf/train/training_curve.h"
#include "statistics.h"

namespace rf::reproduce {

namespace {

// Stages as {max_length, batch, steps}: Table 4 with a quarter of its lengths; tiny has a fiftieth of the steps.
std::vector<train::Stage> stages(Scale scale) {
  const int64_t small[][3] = {{128, 64, 300}, {384, 21, 60}, {64, 128, 200},
                              {32, 256, 150}, {384, 21, 50}, {128, 64, 100}};
  const int64_t published[][3] = {{512, 256, 200000}, {1536, 256, 12500}, {256, 256, 120000},
                                  {128, 512, 80000},  {1536, 256, 10000}, {512, 512, 30000}};
  std::vector<train::Stage> all;
  for (const auto& [length, batch, steps] : scale == Scale::kPaper ? published : small) {
    all.push_back({.max_length = length, .batch = batch, .steps = by_scale(scale, steps / 50, steps)});
  }
  return all;
}

// rows: of held-out text, each of the longest length.
struct StagedSettings : Trained {
  std::vector<int64_t> lengths;
  int64_t rows;
  double mask_probability = 0.15;
  uint64_t mask_seed = 1;
  RF_MEMBERS_AND(Trained, StagedSettings, lengths, rows, mask_probability, mask_seed)
};

StagedSettings staged_settings(Scale scale) {
  train::RunConfig run = masked_lm_run(scale, 1);
  run.stages = stages(scale);
  if (scale == Scale::kPaper) run.schedule.warmup_steps = 20000;
  run.model.max_position_embeddings = scale == Scale::kPaper ? 1536 : 384;
  run.evaluate_lengths =
      scale == Scale::kPaper ? std::vector<int64_t>{128, 256, 512, 1536} : std::vector<int64_t>{32, 64, 128, 384};
  return {{{.runs = "staged",
            .corpus = book_corpus(scale),
            .seeds = seeds_of(scale),
            .run_files = {{"rope", to_json(run)}}}},
          run.evaluate_lengths,
          by_scale(scale, 8, 2000)};
}

// A measurement after a stage, on rows of a length.
struct Place {
  int64_t stage, length;
  auto operator<=>(const Place&) const = default;
};
struct Measured {
  std::vector<double> losses, accuracies;  // by seed
};

std::map<Place, Measured> measurements(const std::vector<train::CompareRun>& runs) {
  std::map<Place, Measured> found;
  for (const train::CompareRun& run : runs) {
    for (const train::LengthEvaluation& entry : train::length_evaluations(run.directory)) {
      Measured& measured = found[{entry.stage, entry.length}];
      measured.losses.push_back(entry.loss);
      measured.accuracies.push_back(entry.accuracy);
    }
  }
  return found;
}

NestedRows masked_rows(const StagedSettings& settings, const std::string& model_dir, const std::string& data_dir) {
  const text::SpecialIds special = text::load_vocabulary(model_dir).special();
  return nested_rows(held_out_rows(data_dir, settings.rows, settings.lengths.back() - 2),
                     {.shortest = settings.lengths.front(),
                      .probability = settings.mask_probability,
                      .seed = settings.mask_seed,
                      .mask = special.mask,
                      .cls = special.cls,
                      .sep = special.sep});
}

// Of the labels, by the frequencies of tokens in the training documents, each counted once more than it occurs.
double loss_of_frequencies(const NestedRows& rows, const std::string& data_dir) {
  const at::Tensor counts_V = at::tensor(data::Split(data_dir, "train", "").token_counts(), at::kLong) + 1;
  const at::Tensor log_V = (counts_V.to(at::kDouble) / counts_V.sum().to(at::kDouble)).log();
  const at::Tensor labels_N = rows.labels_BT.masked_select(rows.labels_BT >= 0);
  return -log_V.index_select(0, labels_N).mean().item<double>();
}

// How well the model at the end predicts the same masked tokens: its accuracy at each length, and its loss at the
// longest less that of the tokens' frequencies.
nlohmann::json read_contexts(const StagedSettings& settings, const train::CompareRun& run,
                             const std::string& data_dir) {
  const NestedRows rows = masked_rows(settings, run.directory, data_dir);
  const auto model = nn::load_model(run.directory, Head::kMaskedLm, at::kFloat);
  std::vector<double> accuracies;
  double loss = 0;
  for (const int64_t length : settings.lengths) {
    const MaskedTokens found = measure(*model, rows, length);
    accuracies.push_back(found.accuracy);
    loss = found.loss;
  }
  return {{"accuracies", accuracies}, {"less frequencies", loss - loss_of_frequencies(rows, data_dir)}};
}

// Its measures; and accuracies of all seeds by length.
std::map<int64_t, std::vector<double>> add_contexts(const StagedSettings& settings, const TrainedArms& trained,
                                                    Result& result) {
  std::map<int64_t, std::vector<double>> accuracies;
  for (const train::CompareRun& run : trained.runs) {
    const nlohmann::json& read = trained.readings.at(run.directory);
    for (size_t i = 0; i < settings.lengths.size(); ++i) {
      const double accuracy = read.at("accuracies").at(i);
      result.measures.push_back({"accuracy of the same masked tokens, fraction",
                                 fmt::format("{} tokens", settings.lengths[i]), run.seed, accuracy});
      accuracies[settings.lengths[i]].push_back(accuracy);
    }
    result.measures.push_back({"loss of the same masked tokens less that of token frequencies, nats", run.arm, run.seed,
                               read.at("less frequencies")});
  }
  return accuracies;
}

Result run_staged(const StagedSettings& settings, const Context& context) {
  const Design& design = settings.design;
  const WeightsReading contexts{.name = "staged-pretraining",
                                .settings = {{"lengths", settings.lengths},
                                             {"rows", settings.rows},
                                             {"mask_probability", settings.mask_probability},
                                             {"mask_seed", settings.mask_seed}},
                                .take = [&](const train::CompareRun& run, const std::string& data_dir) {
                                  return read_contexts(settings, run, data_dir);
                                }};
  const TrainedArms trained = train_arms(context, design, {}, &contexts);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  const std::vector<train::Stage> stages = train::parse_run_config(design.run_files.at("rope")).stages;
  Result result{.columns = {"stage", "trained on", "batch", "steps", "measured on", "loss", "accuracy", "lowest",
                            "highest", "of the same tokens", "lowest", "highest"},
                .rows = {}};
  const std::map<int64_t, std::vector<double>> of_the_same = add_contexts(settings, trained, result);
  for (const auto& [place, measured] : measurements(trained.runs)) {
    const train::Stage& stage = stages.at(static_cast<size_t>(place.stage));
    const Spread accuracy = spread(measured.accuracies);
    result.rows.push_back({place.stage + 1, stage.max_length, stage.batch, stage.steps, place.length,
                           spread(measured.losses).mean, accuracy.mean, accuracy.low, accuracy.high, nullptr, nullptr,
                           nullptr});
    if (place.stage + 1 < std::ssize(stages)) continue;
    const Spread same = spread(of_the_same.at(place.length));
    nlohmann::json& row = result.rows.back();
    row[9] = same.mean;
    row[10] = same.low;
    row[11] = same.high;
  }
  for (const train::CompareRun& each : trained.runs) {
    const Curve curve = loss_curve(each);
    result.series.push_back({fmt::format("training loss, seed {}", each.seed), curve.steps, curve.losses});
  }
  return result;
}

}  // namespace

Experiment staged_pretraining() {
  return {
      .name = "staged-pretraining",
      .spec = "X-07",
      .title = "Does masked-LM accuracy grow with the length? (Table 4)",
      .claims = {"C-21"},
      .expected =
          "After the last stage one and the same model predicts the same masked tokens more often the more tokens it "
          "reads around them, at each step of the lengths; one model and one set of masked tokens leave out the "
          "training time and the batch, with which the paper's lengths are confounded.",
      .budget = "15 minutes per seed",
      .method = {staged_settings, run_staged},
      .revision = 2,
      .hours = 0.8,
      .exceptions = {"English text of --data in place of 34 GB of Chinese text",
                     "from random weights, where the published model starts from WoBERT's"}};
}

}  // namespace rf::reproduce
