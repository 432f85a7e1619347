// X-07 (C-21, the paper's Table 4): one model trained in stages of several lengths; after each stage the same held-out
// documents are measured at each length.
#include <fmt/format.h>

#include <map>

#include "experiment.h"
#include "language_model_runs.h"
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

Trained staged_settings(Scale scale) {
  train::RunConfig run = masked_lm_run(scale, 1);
  run.stages = stages(scale);
  if (scale == Scale::kPaper) run.schedule.warmup_steps = 20000;
  run.model.max_position_embeddings = scale == Scale::kPaper ? 1536 : 384;
  run.evaluate_lengths =
      scale == Scale::kPaper ? std::vector<int64_t>{128, 256, 512, 1536} : std::vector<int64_t>{32, 64, 128, 384};
  return {{.runs = "staged",
           .corpus = book_corpus(scale),
           .seeds = seeds_of(scale),
           .run_files = {{"rope", to_json(run)}}}};
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

Result run_staged(const Trained& settings, const Context& context) {
  const Design& design = settings.design;
  const TrainedArms trained = train_run_files(context, design);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  const std::vector<train::Stage> stages = train::parse_run_config(design.run_files.at("rope")).stages;
  Result result{
      .columns = {"stage", "trained on", "batch", "steps", "measured on", "loss", "accuracy", "lowest", "highest"},
      .rows = {}};
  const int64_t last = std::ssize(stages) - 1;
  std::vector<std::vector<double>> by_length;  // accuracies after the last stage, rising lengths
  std::vector<int64_t> lengths;
  for (const auto& [place, measured] : measurements(trained.runs)) {
    const train::Stage& stage = stages.at(static_cast<size_t>(place.stage));
    const Spread accuracy = spread(measured.accuracies);
    result.rows.push_back({place.stage + 1, stage.max_length, stage.batch, stage.steps, place.length,
                           spread(measured.losses).mean, accuracy.mean, accuracy.low, accuracy.high});
    if (place.stage != last) continue;
    lengths.push_back(place.length);
    by_length.push_back(measured.accuracies);
  }
  for (const train::CompareRun& each : trained.runs) {
    const Curve curve = loss_curve(each);
    result.series.push_back({fmt::format("training loss, seed {}", each.seed), curve.steps, curve.losses});
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    for (size_t seed = 0; seed < by_length[i].size(); ++seed) {
      result.measures.push_back(
          {"accuracy, fraction", fmt::format("{} tokens", lengths[i]), trained.runs.at(seed).seed, by_length[i][seed]});
    }
  }
  return result;
}

}  // namespace

Experiment staged_pretraining() {
  return {.name = "staged-pretraining",
          .spec = "X-07",
          .title = "Does masked-LM accuracy grow with the length? (Table 4)",
          .claims = {"C-21"},
          .expected =
              "After the last stage one and the same model has a higher held-out accuracy on each longer "
              "length, with every seed; measuring one model leaves out the training time, with which the "
              "paper's lengths are confounded.",
          .budget = "15 minutes per seed",
          .method = {staged_settings, run_staged},
          .exceptions = {"English text of --data in place of 34 GB of Chinese text",
                         "from random weights, where the published model starts from WoBERT's"}};
}

}  // namespace rf::reproduce
