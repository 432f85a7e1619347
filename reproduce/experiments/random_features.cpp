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
  Seeds seeds = {1};
  RF_MEMBERS(RandomFeaturesSettings, draws, tokens, heads, head_dim, input_std, features, seeds)
};

RandomFeaturesSettings random_features_settings(Scale scale) {
  return {.draws = by_scale(scale, 8, 100)};
}

struct Inputs {
  at::Tensor query_BTHD, key_BTHD, value_BTHD;
};

// The relative error of the outputs, mean over draws of the random vectors.
double mean_error(const Inputs& in, const at::Tensor& exact, const RandomFeaturesSettings& settings, int64_t features,
                  bool orthogonal) {
  LinearAttentionConfig config;
  config.feature_map = FeatureMap::kFavor;
  config.rope_site = RopeSite::kNone;
  config.num_features = features;
  config.orthogonal = orthogonal;
  config.feature_eps = 0;
  double sum = 0;
  for (int64_t draw = 0; draw < settings.draws; ++draw) {
    const at::Tensor projection_FD =
        nn::draw_features(features, settings.head_dim,
                          {.orthogonal = orthogonal, .seed = static_cast<int64_t>(settings.seeds[0]), .redraw = draw});
    const at::Tensor found =
        nn::linear_attention(in.query_BTHD, in.key_BTHD, in.value_BTHD, {}, config, projection_FD, {});
    sum += (found - exact).norm().item<double>() / exact.norm().item<double>();
  }
  return sum / static_cast<double>(settings.draws);
}

Result run_random_features(const RandomFeaturesSettings& settings, const Context&) {
  at::manual_seed(settings.seeds[0]);
  const int64_t tokens = settings.tokens, heads = settings.heads, head_dim = settings.head_dim;
  const double deviation = settings.input_std;
  const auto draw = [&] { return deviation * at::randn({1, tokens, heads, head_dim}, at::kDouble); };
  const at::Tensor query = draw(), key = draw();
  const Inputs in{query, key, draw()};
  const nn::AttentionContext all(nn::make_positions(at::arange(tokens, at::kLong)), /*attend=*/{}, {});
  const at::Tensor exact = nn::attention(in.query_BTHD, in.key_BTHD, in.value_BTHD, {}, all);
  Result result{.columns = {"features", "error, independent", "error, orthogonal"}, .rows = {}};
  std::vector<double> numbers, independent, orthogonal;
  bool better = true;
  for (const int64_t features : settings.features) {
    numbers.push_back(static_cast<double>(features));
    independent.push_back(mean_error(in, exact, settings, features, false));
    orthogonal.push_back(mean_error(in, exact, settings, features, true));
    result.rows.push_back({features, independent.back(), orthogonal.back()});
    better = better && orthogonal.back() <= independent.back();
  }
  result.series = {{"independent", numbers, independent}, {"orthogonal", numbers, orthogonal}};
  const double power_independent = power(numbers, independent), power_orthogonal = power(numbers, orthogonal);
  result.findings = {{"X-17", std::abs(power_independent + 0.5) <= kPowerTolerance && better,
                      fmt::format("the error of independent features goes with m to the power {:.2f}, of orthogonal "
                                  "ones {:.2f}; orthogonal ones are {}",
                                  power_independent, power_orthogonal, better ? "never worse" : "not always better")}};
  return result;
}

}  // namespace

Experiment random_features() {
  return {.name = "random-features",
          .spec = "X-17",
          .title = "The error of Performer's random features",
          .claims = {},
          .expected =
              "The error of attention falls with the number of features m as m^(-1/2) (power -0.5 within "
              "0.15), and orthogonal features are at no m worse than independent ones.",
          .budget = "1 minute",
          .method = {random_features_settings, run_random_features},
          .kind = Kind::kMeasurement};
}

}  // namespace rf::reproduce
