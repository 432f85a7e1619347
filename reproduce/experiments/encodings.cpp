// the body of X-03 with one encoding after another; C-10, C-12 and C-13 are judged from its rows.
#include <fmt/format.h>

#include "experiment.h"
#include "language_model_runs.h"
#include "statistics.h"

namespace rf::reproduce {

namespace {

const std::vector<std::string> kClips = {"shaw:max_relative_position=4", "shaw:max_relative_position=16",
                                         "shaw:max_relative_position=64"};
const std::vector<std::string> kOneMiddleTerm = {"deberta:pos_att_type=[\"c2p\"]", "deberta:pos_att_type=[\"p2c\"]"};
const std::vector<std::string> kHuang = {"huang-m1", "huang-m2", "huang-m3", "huang-m4"};
// Half the rows of X-03's batches, so that 5,000 steps take hours and not a day.
nlohmann::json run_of(Scale scale) {
  train::RunConfig run = masked_lm_run(scale, 5000);
  if (scale == Scale::kSmall) run.stages.front().batch = 16;
  return to_json(run);
}

Trained encodings_settings(Scale scale) {
  std::vector<std::string> arms = {"none", "learned", "rope", "deberta"};
  for (const auto* more : {&kClips, &kOneMiddleTerm, &kHuang}) arms.insert(arms.end(), more->begin(), more->end());
  return {{.runs = "encodings",
           .corpus = book_corpus(scale),
           .seeds = seeds_of(scale),
           .arms = arms,
           .run = run_of(scale),
           .search = rate_search(scale, 1000)}};
}

Result run_encodings(const Trained& settings, const Context& context) {
  const Design& design = settings.design;
  const TrainedArms trained = train_arms(context, design);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  const Losses losses = held_out_losses(trained.runs);
  Result result{.columns = {"encoding", "parameters", "peak MiB", "held-out loss", "lowest", "highest"}, .rows = {}};
  for (const std::string& arm : design.arms) {
    const std::vector<train::CompareRun> runs = runs_of(trained.runs, arm);
    std::vector<double> peaks;
    for (const train::CompareRun& each : runs) {
      peaks.push_back(static_cast<double>(each.peak_bytes) / (1 << 20));
      const Curve curve = loss_curve(each);
      result.series.push_back({fmt::format("{}, seed {}", arm, each.seed), curve.steps, curve.losses});
    }
    const Spread loss = spread(losses.at(arm));
    result.rows.push_back({arm, runs.front().parameters, spread(peaks).high, loss.mean, loss.low, loss.high});
  }
  add_measures(result, trained.runs);
  return result;
}

}  // namespace

Experiment encodings() {
  return {
      .name = "encodings",
      .spec = "X-05",
      .title = "One body, one position encoding after another",
      .claims = {"C-10", "C-12", "C-13"},
      .expected =
          "C-10: Shaw's clip at 64 is not better than at 16 by 0.02 nats or more. C-12: DeBERTa's two middle terms "
          "are worse than either alone, and than all four terms of a learned table, by less than 0.02 nats. C-13: "
          "Huang's method 4 has the lowest loss of the four. X-05: RoPE is worse than Shaw's, DeBERTa's and Huang's "
          "fourth encoding by less than 0.02 nats.",
      .budget = "9 minutes per arm and seed, 13 arms, 2 for each rate, and a run or more to choose one",
      .method = {encodings_settings, run_encodings},
      .revision = 3,
      .hours = 6.9,
      .exceptions = {"no publication compares these encodings; the body and the schedule are those of convergence"},
      .shares_arms = true};
}

}  // namespace rf::reproduce
