// X-04 (C-18, C-08, the paper's Figure 3, right): causal models of bytes, linear attention with and without RoPE.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "experiment.h"
#include "language_model_runs.h"
#include "layer_parts.h"
#include "statistics.h"

namespace rf::reproduce {

namespace {

struct LinearSettings : Trained {
  int64_t rows, tokens;
  RF_MEMBERS_AND(Trained, LinearSettings, rows, tokens)
};

LinearSettings linear_settings(Scale scale) {
  const ByteRows length{256, 16};
  // At scale paper the features of the Performer (FAVOR+), as published; at the others elu for all arms, whose sums are
  // exact.
  const bool is_paper = scale == Scale::kPaper;
  const nlohmann::json map = is_paper
                                 ? nlohmann::json{{"type", "linear"}, {"feature_map", "favor"}, {"num_features", 266}}
                                 : nlohmann::json{{"type", "linear"}, {"feature_map", "elu"}};
  Design design = {.runs = "linear-language-model", .corpus = byte_corpus(scale), .seeds = seeds_of(scale)};
  for (const char* encoding : {"none", "learned", "rope"}) {
    design.run_files[encoding] = byte_run(scale, encoding, map, length, 2000);
  }
  design.run_files["rope, softmax"] = byte_run(scale, "rope", "softmax", length, 2000);
  design.search = rate_search(scale, 500);
  if (scale == Scale::kTiny) design.search.lower = 1;
  return {{design}, by_scale(scale, 2, 16), length.tokens};
}

// A query's mean weight of a key in a model of Eq. 19, over layers, heads and tokens of held-out text.
double smallest_mean_weight(const std::string& model_dir, const at::Tensor& ids_BT) {
  const at::NoGradGuard no_grad;
  const auto model = nn::load_model(model_dir, Head::kCausalLm, at::kDouble);
  double smallest = std::numeric_limits<double>::infinity();
  int64_t layer = 0;
  for (const at::Tensor& input : layer_inputs(*model, ids_BT)) {
    smallest = std::min(smallest, mean_weights(*model, layer++, input).min().item<double>());
  }
  return smallest;
}

Result run_linear(const LinearSettings& settings, const Context& context) {
  const Design& design = settings.design;
  const WeightsReading denominator{.name = "linear-language-model",
                                   .settings = {{"rows", settings.rows}, {"tokens", settings.tokens}},
                                   .take = [&](const train::CompareRun& run, const std::string& data_dir) {
                                     nlohmann::json values = nlohmann::json::object();
                                     if (run.arm == "rope") {
                                       const at::Tensor ids_BT =
                                           held_out_rows(data_dir, settings.rows, settings.tokens);
                                       values["smallest denominator"] = smallest_mean_weight(run.directory, ids_BT);
                                     }
                                     return values;
                                   }};
  const TrainedArms trained = train_arms(context, design, {}, &denominator);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  const Curves curves = loss_curves(trained.runs);
  const Losses held_out = held_out_losses(trained.runs);
  Result result{.columns = {"model", "late training loss", "lowest", "highest", "held-out bits per byte", "lowest",
                            "highest", "smallest denominator by keys"},
                .rows = {}};
  for (const auto& [arm, of_seeds] : curves) {
    std::vector<double> late, bits;
    for (const Curve& curve : of_seeds) {
      late.push_back(late_mean(curve));
      result.series.push_back(
          {fmt::format("{}, seed {}", arm, design.seeds[late.size() - 1]), curve.steps, curve.losses});
    }
    for (const double loss : held_out.at(arm)) bits.push_back(loss / std::log(2.0));
    const Spread training = spread(late), valid = spread(bits);
    nlohmann::json smallest;  // null but for Eq. 19's
    for (const train::CompareRun& each : runs_of(trained.runs, arm)) {
      if (arm != "rope" || each.diverged_at > 0) continue;
      const double of_run = trained.readings.at(each.directory).at("smallest denominator");
      smallest = smallest.is_null() ? of_run : std::min(smallest.get<double>(), of_run);
    }
    result.rows.push_back(
        {arm, training.mean, training.low, training.high, valid.mean, valid.low, valid.high, smallest});
  }
  add_measures(result, trained.runs);
  add_steps(result, trained.runs, "rope", "learned", measures::kStepsOfLearned);
  return result;
}

}  // namespace

Experiment linear_language_model() {
  return {
      .name = "linear-language-model",
      .spec = "X-04",
      .title = "Does linear attention learn faster with RoPE? (Figure 3, right)",
      .claims = {"C-18", "C-08"},
      .expected =
          "C-18: with rotations (Eq. 19) linear attention takes at most nine tenths of the steps of a learned table "
          "to the training loss that both reach in the end, and ends lower by at least 0.02 nats (held out). C-08: "
          "Eq. 19 ends lower than without positions by at least 0.02 nats.",
      .budget = "7 minutes per arm and seed, 4 arms, 2 minutes for each rate, and a run or more to choose one",
      .method = {linear_settings, run_linear},
      .revision = 3,
      .hours = 1.5,
      .exceptions =
          {"norms after the blocks, biases and a tied output, where the published code has norms before them, "
           "no biases and an output of its own",
           "the 266 random features are drawn once, where the published code draws anew every 1,000 steps",
           "a constant learning rate without warm-up: the paper names none", "100,000 steps, the axis of Figure 3"},
      .shares_arms = true};
}

}  // namespace rf::reproduce
