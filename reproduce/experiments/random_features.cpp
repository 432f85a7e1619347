// X-17 (spec R-LIN-04): how far attention by FAVOR+'s random features is from softmax attention, by their number m, for
// independent and for orthogonal vectors.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "experiment.h"
#include "rf/nn/linear_attention.h"
#include "statistics.h"

namespace rf::reproduce {

namespace {

constexpr double kPowerTolerance = 0.15;

struct RandomFeaturesSettings {
  int64_t draws;
  int64_t tokens = 64, heads = 4, head_dim = 16;
  double input_std = 0.5;  // of queries, keys and values
  std::vector<int64_t> features = {16, 32, 64, 128, 256, 512, 1024};
  Seeds seeds;
  RF_MEMBERS(RandomFeaturesSettings, draws, tokens, heads, head_dim, input_std, features, seeds)
};

RandomFeaturesSettings random_features_settings(Scale scale) {
  if (scale == Scale::kTiny) return {.draws = 8, .seeds = {1}};
  return {.draws = 20, .seeds = {1, 2, 3, 4, 5}};
}

struct Inputs {
  at::Tensor query_BTHD, key_BTHD, value_BTHD;
};

// The relative error of the outputs, mean over draws of the random vectors.
double mean_error(const Inputs& in, const at::Tensor& exact, const RandomFeaturesSettings& settings, uint64_t seed,
                  int64_t features, bool orthogonal) {
  LinearAttentionConfig config;
  config.feature_map = FeatureMap::kFavor;
  config.rope_site = RopeSite::kNone;
  config.num_features = features;
  config.orthogonal = orthogonal;
  config.feature_eps = 0;
  double sum = 0;
  for (int64_t draw = 0; draw < settings.draws; ++draw) {
    const at::Tensor projection_FD = nn::draw_features(
        features, settings.head_dim, {.orthogonal = orthogonal, .seed = static_cast<int64_t>(seed), .redraw = draw});
    const at::Tensor found =
        nn::linear_attention(in.query_BTHD, in.key_BTHD, in.value_BTHD, {}, config, projection_FD, {});
    sum += (found - exact).norm().item<double>() / exact.norm().item<double>();
  }
  return sum / static_cast<double>(settings.draws);
}

// With one seed: the error by the number of features, of independent and of orthogonal ones.
struct Errors {
  std::vector<double> independent, orthogonal;
};

Errors errors_of(const RandomFeaturesSettings& settings, uint64_t seed) {
  at::manual_seed(seed);
  const auto draw = [&] {
    return settings.input_std * at::randn({1, settings.tokens, settings.heads, settings.head_dim}, at::kDouble);
  };
  const at::Tensor query = draw(), key = draw();
  const Inputs in{query, key, draw()};
  const nn::AttentionContext all(nn::make_positions(at::arange(settings.tokens, at::kLong)), /*attend=*/{}, {});
  const at::Tensor exact = nn::attention(in.query_BTHD, in.key_BTHD, in.value_BTHD, {}, all);
  Errors errors;
  for (const int64_t features : settings.features) {
    errors.independent.push_back(mean_error(in, exact, settings, seed, features, false));
    errors.orthogonal.push_back(mean_error(in, exact, settings, seed, features, true));
  }
  return errors;
}

Result run_random_features(const RandomFeaturesSettings& settings, const Context&) {
  const std::vector<double> numbers(settings.features.begin(), settings.features.end());
  std::vector<Errors> by_seed;
  std::vector<double> independent_powers, orthogonal_powers;
  for (const uint64_t seed : settings.seeds) {
    const Errors& errors = by_seed.emplace_back(errors_of(settings, seed));
    independent_powers.push_back(power(numbers, errors.independent));
    orthogonal_powers.push_back(power(numbers, errors.orthogonal));
  }
  Result result{.columns = {"features", "error, independent", "error, orthogonal"}, .rows = {}};
  result.series = {{"independent", numbers, {}}, {"orthogonal", numbers, {}}};
  bool better = true;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto mean = [&](std::vector<double> Errors::*errors) {
      double sum = 0;
      for (const Errors& of_seed : by_seed) sum += (of_seed.*errors)[i] / static_cast<double>(by_seed.size());
      return sum;
    };
    const double independent = mean(&Errors::independent), orthogonal = mean(&Errors::orthogonal);
    result.rows.push_back({settings.features[i], independent, orthogonal});
    result.series[0].y.push_back(independent);
    result.series[1].y.push_back(orthogonal);
    better = better && orthogonal <= independent;
  }
  const Estimate independent = estimate(independent_powers, kConfidence);
  const bool is_half = independent.is_within(-0.5 - kPowerTolerance, -0.5 + kPowerTolerance);
  result.findings = {{"X-17", is_half && better,
                      fmt::format("the error of independent features goes with m to the power {}, of orthogonal ones "
                                  "{}; orthogonal ones are {}",
                                  text(independent), text(estimate(orthogonal_powers, kConfidence)),
                                  better ? "at no m worse" : "not always better")}};
  return result;
}

}  // namespace

Experiment random_features() {
  return {
      .name = "random-features",
      .spec = "X-17",
      .title = "The error of Performer's random features",
      .claims = {},
      .expected =
          "The error of attention falls with the number of features m as m^(-1/2) (power -0.5 within 0.15, with the "
          "whole 95 % interval of five seeds), and orthogonal features are at no m worse than independent ones.",
      .budget = "1 minute",
      .method = {random_features_settings, run_random_features},
      .kind = Kind::kMeasurement,
      .revision = 2};
}

}  // namespace rf::reproduce
