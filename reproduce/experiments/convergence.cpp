// X-03 (C-17, the paper's Figure 3, left): masked-LM loss of the same body with BERT's learned table, with sinusoids
// that are added to scaled words, with RoPE, and without positions; data order, masks and initial weights are the same.
// The paper's learning rate of 1e-5 is too low for so few steps; at scale small each arm has its own, the best of a
// grid. An arm without encoding shows what positions are worth.
#include <fmt/format.h>

#include "experiment.h"
#include "language_model_runs.h"
#include "statistics.h"

namespace rf::reproduce {

namespace {

Trained convergence_settings(Scale scale) {
  return {convergence_design(scale)};
}

Result run_convergence(const Trained& settings, const Context& context) {
  const Design& design = settings.design;
  const TrainedArms trained = train_arms(context, design);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  const Curves curves = loss_curves(trained.runs);
  const Losses held_out = held_out_losses(trained.runs);
  Result result{.columns = {"encoding", "parameters", "late training loss", "lowest", "highest", "held-out loss",
                            "lowest", "highest"},
                .rows = {}};
  for (const std::string& arm : design.arms) {
    std::vector<double> late;
    for (const Curve& curve : curves.at(arm)) {
      late.push_back(late_mean(curve));
      result.series.push_back(
          {fmt::format("{}, seed {}", arm, design.seeds[late.size() - 1]), curve.steps, curve.losses});
    }
    const Spread training = spread(late), valid = spread(held_out.at(arm));
    result.rows.push_back({arm, runs_of(trained.runs, arm).front().parameters, training.mean, training.low,
                           training.high, valid.mean, valid.low, valid.high});
  }
  add_measures(result, trained.runs);
  add_steps(result, trained.runs, "rope", "learned", measures::kStepsOfLearned);
  add_steps(result, trained.runs, "rope", kScaledSinusoids, measures::kStepsOfSinusoidal);
  return result;
}

}  // namespace

Experiment convergence() {
  return {
      .name = "convergence",
      .spec = "X-03",
      .title = "Does the masked-LM loss fall faster with RoPE? (Figure 3, left)",
      .claims = {"C-17"},
      .expected =
          "C-17, faster: RoPE takes at most nine tenths of the steps of the learned table, and of sinusoids, to the "
          "training loss that both reach in the end. X-03, lower: RoPE's held-out loss at the end is lower by at least "
          "0.02 nats.",
      .budget = "34 minutes per arm and seed, 4 arms, 6 for each rate, and a run or more to choose one",
      .method = {convergence_settings, run_convergence},
      .revision = 4,
      .hours = 5.5,
      .exceptions = {"the learning rate of 1e-5 is constant: the paper names no schedule",
                     "English text of --data in place of BookCorpus and Wikipedia",
                     "bfloat16, and gradients clipped at a norm of 1: the paper names neither"},
      .note =
          "No ratio of steps can be below 0.05, a twentieth, over which losses are smoothed: a mean near it says that "
          "the other arm's last loss is passed in the first twentieth of the run, and its interval and p say no more.",
      .shares_arms = true};
}

}  // namespace rf::reproduce
