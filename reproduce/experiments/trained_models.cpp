// Parts of trained models:
//
//   word-position        X-15, C-11  Eq. 6's terms in the first layer of X-03's models with a learned table
//   trained-scores       X-02, C-04  scores by distance in X-03's models with RoPE
//   trained-frequencies  X-16, C-29  RoPE whose frequencies are trained
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>

#include "experiment.h"
#include "language_model_runs.h"
#include "layer_parts.h"
#include "statistics.h"
#include "tensors.h"

namespace rf::reproduce {

namespace {

std::shared_ptr<nn::Model> trained_model(const train::CompareRun& run) {
  return nn::load_model(run.directory, Head::kMaskedLm, at::kDouble);
}

// Settings of experiments that read X-03's models.
struct ModelSettings : Trained {
  std::string arm;
  int64_t rows, tokens = 128;
  RF_MEMBERS_AND(Trained, ModelSettings, arm, rows, tokens)
};

ModelSettings models_of_convergence(Scale scale, const char* arm) {
  return {{convergence_design(scale)}, arm, by_scale(scale, 4, 32)};
}

struct WordSettings : ModelSettings {
  double bound = 0.2;
  RF_MEMBERS_AND(ModelSettings, WordSettings, bound)
};

WordSettings word_settings(Scale scale) {
  return {models_of_convergence(scale, "learned")};
}

// Standard deviation over all pairs of tokens of a row and all rows, mean over heads. scores: [B,H,T,T].
double deviation(const at::Tensor& scores_BHTT) {
  return scores_BHTT.transpose(0, 1).flatten(1).std(1, /*unbiased=*/false).mean().item<double>();
}

Result run_word(const WordSettings& settings, const Context& context) {
  const TrainedArms trained = train_arms(context, settings.design);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  const at::NoGradGuard no_grad;
  const at::Tensor ids_BT = held_out_rows(trained.data_dir, settings.rows, settings.tokens);
  Result result{.columns = {"seed", "word to word", "word to position", "position to word", "position to position"},
                .rows = {}};
  std::vector<double> ratios;
  for (const train::CompareRun& run : runs_of(trained.runs, settings.arm)) {
    const ScoreTerms terms = first_layer_terms(*trained_model(run), ids_BT);
    const double content = deviation(terms.content_content), to_position = deviation(terms.content_position);
    const double to_content = deviation(terms.position_content);
    result.rows.push_back({run.seed, content, to_position, to_content, deviation(terms.position_position)});
    ratios.push_back(std::max(to_position, to_content) / content);
  }
  const Judgement judgement = little_correlation(ratios, settings.bound);
  result.findings = {{"C-11", judgement.holds, judgement.figures}};
  return result;
}

struct TrainedScoreSettings : ModelSettings {
  std::array<int64_t, 2> near = {1, 8}, far = {64, 127};  // distances, both ends included
  int64_t reach = 32;                                     // of the picture of attention, to either side
  RF_MEMBERS_AND(ModelSettings, TrainedScoreSettings, near, far, reach)
};

TrainedScoreSettings score_settings(Scale scale) {
  return {models_of_convergence(scale, "rope")};
}

// q.k / sqrt(D) of each layer, [B,H,T,T].
std::vector<at::Tensor> layer_scores(const nn::Model& model, const at::Tensor& ids_BT) {
  const at::Tensor positions = integers(0, ids_BT.size(1));
  const auto turned = [&](const at::Tensor& x_BHTD) {
    return rotated(x_BHTD.transpose(1, 2), positions).transpose(1, 2);
  };
  std::vector<at::Tensor> scores;
  for (const at::Tensor& input : layer_inputs(model, ids_BT)) {
    const QueryKey found = projected(model, static_cast<int64_t>(scores.size()), input, Bias::kAdded);
    scores.push_back(at::matmul(turned(found.query_BHTD), turned(found.key_BHTD).transpose(2, 3)) /
                     std::sqrt(static_cast<double>(model.config().head_dim())));
  }
  return scores;
}

// Mean by distance 0..T-1 to either side, over rows, heads and layers: [T].
at::Tensor mean_scores(const std::vector<at::Tensor>& layers) {
  const int64_t tokens = layers.front().size(2);
  const at::Tensor positions = integers(0, tokens);
  at::Tensor mean_TT = at::zeros({tokens, tokens}, at::kDouble);
  for (const at::Tensor& scores_BHTT : layers) mean_TT += scores_BHTT.mean({0, 1}) / double(layers.size());
  const at::Tensor distance_TT = (positions.unsqueeze(0) - positions.unsqueeze(1)).abs();
  const at::Tensor sums = at::bincount(distance_TT.flatten(), mean_TT.flatten(), tokens);
  return sums / at::bincount(distance_TT.flatten(), {}, tokens);
}

// Mean attention of each head of each layer by distance.
HeatMap attention_map(const std::vector<at::Tensor>& layers, int64_t reach, const std::string& name) {
  HeatMap map{name, "position of the key from the query", "mean attention", values(integers(-reach, reach + 1)), {},
              {}};
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const at::Tensor by_head = attention_by_offset(layers[layer], reach);
    for (int64_t head = 0; head < by_head.size(0); ++head) {
      map.y.push_back(fmt::format("layer {}, head {}", layer + 1, head + 1));
      map.values.push_back(values(by_head[head]));
    }
  }
  return map;
}

Result run_scores(const TrainedScoreSettings& settings, const Context& context) {
  const TrainedArms trained = train_arms(context, settings.design);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  const at::NoGradGuard no_grad;
  const at::Tensor ids_BT = held_out_rows(trained.data_dir, settings.rows, settings.tokens);
  const auto mean_over = [](const at::Tensor& scores_T, std::array<int64_t, 2> ends) {
    return scores_T.slice(0, ends[0], ends[1] + 1).mean().item<double>();
  };
  Result result{.columns = {"seed", "mean score, same token", "near pairs", "far pairs"}, .rows = {}};
  std::vector<double> near, far;
  for (const train::CompareRun& run : runs_of(trained.runs, settings.arm)) {
    const std::vector<at::Tensor> layers = layer_scores(*trained_model(run), ids_BT);
    const at::Tensor scores_T = mean_scores(layers);
    near.push_back(mean_over(scores_T, settings.near));
    far.push_back(mean_over(scores_T, settings.far));
    result.rows.push_back({run.seed, scores_T[0].item<double>(), near.back(), far.back()});
    result.series.push_back({fmt::format("mean score by distance, seed {}", run.seed),
                             values(integers(0, scores_T.size(0))), values(scores_T)});
    if (!result.maps.empty()) continue;  // maps of one model are enough
    result.maps.push_back(
        attention_map(layers, settings.reach, fmt::format("Attention by distance, seed {}", run.seed)));
  }
  const Judgement judgement = nearer_is_higher(near, far);
  result.findings = {{"C-04", judgement.holds, judgement.figures}};
  return result;
}

struct FrequencySettings : Trained {
  double bound = 0.05;
  RF_MEMBERS_AND(Trained, FrequencySettings, bound)
};

FrequencySettings frequency_settings(Scale scale) {
  Design design = convergence_design(scale);
  design.runs = "trained-frequencies";
  design.arms = {"rope:trainable=true"};
  return {{design}};
}

Result run_frequencies(const FrequencySettings& settings, const Context& context) {
  const TrainedArms trained = train_arms(context, settings.design);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  const at::NoGradGuard no_grad;
  Result result{.columns = {"seed", "median change of a frequency, of it", "largest change"}, .rows = {}};
  std::vector<double> medians;
  for (const train::CompareRun& run : trained.runs) {
    const auto model = trained_model(run);
    const at::Tensor now = model->named_parameters()["position_encoding.freqs"];
    const at::Tensor before = frequencies(model->config().head_dim()).to(at::kFloat).to(at::kDouble);
    const at::Tensor change = (now - before).abs() / before;
    medians.push_back(median(values(change)));
    result.rows.push_back({run.seed, medians.back(), largest(change)});
    result.series.push_back(
        {fmt::format("frequencies, seed {}", run.seed), values(integers(0, now.size(0))), values(now)});
    if (medians.size() == 1) {
      result.series.push_back({"frequencies before", values(integers(0, now.size(0))), values(before)});
    }
  }
  const Judgement judgement = frequencies_stay(medians, settings.bound);
  result.findings = {{"C-29", judgement.holds, judgement.figures}};
  return result;
}

}  // namespace

Experiment word_position() {
  return {.name = "word-position",
          .spec = "X-15",
          .title = "Do words and absolute positions have to do with each other?",
          .claims = {"C-11"},
          .expected =
              "In the first layer of a model with a learned table, the terms of Eq. 6 between word and "
              "position spread at most 0.2 times as far as the term between words, with every seed.",
          .budget = "1 minute, without the models of convergence",
          .method = {word_settings, run_word}};
}

Experiment trained_scores() {
  return {.name = "trained-scores",
          .spec = "X-02",
          .title = "Do scores decay with distance? A trained model",
          .claims = {"C-04"},
          .expected =
              "In a model trained with RoPE the mean score of tokens 1 to 8 apart is above that of tokens 64 "
              "to 127 apart, with every seed.",
          .budget = "1 minute, without the models of convergence",
          .method = {score_settings, run_scores}};
}

Experiment trained_frequencies() {
  return {.name = "trained-frequencies",
          .spec = "X-16",
          .title = "Do frequencies stay where they are when they may be trained?",
          .claims = {"C-29"},
          .expected = "With every seed the median frequency changes by less than 5 % in the course of training.",
          .budget = "5 minutes per seed",
          .method = {frequency_settings, run_frequencies}};
}

}  // namespace rf::reproduce
