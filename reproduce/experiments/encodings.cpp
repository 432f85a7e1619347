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
const std::vector<std::string> kRelative = {
    "shaw:max_relative_position=16", "transformer-xl", "t5", "tupe-r", "deberta", "nezha"};
const std::vector<std::string> kSlower = {"shaw:max_relative_position=16", "transformer-xl", "deberta"};

Trained encodings_settings(Scale scale) {
  std::vector<std::string> arms = {"none", "learned", "sinusoidal", "rope", "transformer-xl",
                                   "t5",   "tupe-r",  "deberta",    "nezha"};
  for (const auto* more : {&kClips, &kOneMiddleTerm, &kHuang}) arms.insert(arms.end(), more->begin(), more->end());
  return {{.runs = "encodings",
           .corpus = book_corpus(scale),
           .seeds = seeds_of(scale),
           .arms = arms,
           .run = to_json(masked_lm_run(scale, 400))}};
}

Result run_encodings(const Trained& settings, const Context& context) {
  const Design& design = settings.design;
  const TrainedArms trained = train_arms(context, design);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  const Losses losses = held_out_losses(trained.runs);
  Result result{.columns = {"encoding", "parameters", "ms per step", "peak MiB", "held-out loss", "lowest", "highest"},
                .rows = {}};
  std::map<std::string, double> milliseconds;
  for (const std::string& arm : design.arms) {
    const std::vector<train::CompareRun> runs = runs_of(trained.runs, arm);
    std::vector<double> times, peaks;
    for (const train::CompareRun& each : runs) {
      times.push_back(each.step_ms);
      peaks.push_back(static_cast<double>(each.peak_bytes) / (1 << 20));
      const Curve curve = loss_curve(each);
      result.series.push_back({fmt::format("{}, seed {}", arm, each.seed), curve.steps, curve.losses});
    }
    milliseconds[arm] = median(times);
    const Spread loss = spread(losses.at(arm));
    result.rows.push_back(
        {arm, runs.front().parameters, milliseconds[arm], spread(peaks).high, loss.mean, loss.low, loss.high});
  }
  const auto find = [&](const char* claim, const Judgement& judgement) {
    result.findings.push_back({claim, judgement.holds, judgement.figures});
  };
  find("C-10", clipping_loses_nothing(losses, kClips));
  find("C-12", middle_terms_suffice(losses, "deberta", kOneMiddleTerm, "learned"));
  find("C-13", last_is_best(losses, kHuang));
  find("X-05", rope_among(losses, milliseconds, {.relative = kRelative, .slower = kSlower}));
  return result;
}

}  // namespace

Experiment encodings() {
  return {.name = "encodings",
          .spec = "X-05",
          .title = "One body, one position encoding after another",
          .claims = {"C-10", "C-12", "C-13"},
          .expected =
              "C-10: Shaw's clip at 64 is not better than at 16. C-12: DeBERTa's two middle terms are at least "
              "as good as either alone and as all four terms of a learned table. C-13: Huang's method 4 has "
              "the lowest loss of the four with every seed. X-05: without encoding the loss is higher than "
              "with every relative one, RoPE is as good as the best of them, and its step is faster than "
              "Shaw's, Transformer-XL's and DeBERTa's. Better and worse mean beyond the range over seeds.",
          .budget = "1 minute per arm and seed, huang-m3 4 minutes, 18 arms",
          .method = {encodings_settings, run_encodings}};
}

}  // namespace rf::reproduce
