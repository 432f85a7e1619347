// Parts of trained models:
//
//   word-position        X-15, C-11  Eq. 6's terms in the first layer of X-03's models with a learned table
//   trained-scores       X-02, C-04  scores by distance in X-03's models with RoPE
//   trained-frequencies  X-16, C-29  RoPE whose frequencies are trained
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <map>

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

// Settings of experiments that read X-03's models of one arm, and compare them with none.
struct ModelSettings : Trained {
  std::string arm;
  int64_t rows, tokens = 128;
  RF_MEMBERS_AND(Trained, ModelSettings, arm, rows, tokens)
};

ModelSettings models_of_convergence(Scale scale, const char* arm) {
  return {{convergence_design(scale)}, arm, by_scale(scale, 4, 32)};
}

// The runs of no encoding, and those of the settings' arm with what `read` reads of them.
template <typename Settings>
TrainedArms trained_arms(const Settings& settings, const Context& context, const char* name,
                         nlohmann::json (*read)(const Settings&, const train::CompareRun&, const std::string&)) {
  nlohmann::json of_reading = settings;
  for (const char* of_runs : {"design", "files", "seeds"}) of_reading.erase(of_runs);
  const WeightsReading reading{
      .name = name, .settings = of_reading, .take = [&](const train::CompareRun& run, const std::string& data_dir) {
        return read(settings, run, data_dir);
      }};
  TrainedArms trained = train_arms(context, settings.design, {"none"});
  if (trained.signal != 0) return trained;
  TrainedArms of_arm = train_arms(context, settings.design, {settings.arm}, &reading);
  of_arm.runs.insert(of_arm.runs.begin(), trained.runs.begin(), trained.runs.end());
  return of_arm;
}

ModelSettings word_settings(Scale scale) {
  return models_of_convergence(scale, "learned");
}

// Standard deviation over all pairs of tokens of a row and all rows, mean over heads. scores: [B,H,T,T].
double deviation(const at::Tensor& scores_BHTT) {
  return scores_BHTT.transpose(0, 1).flatten(1).std(1, /*unbiased=*/false).mean().item<double>();
}

// Standard deviations of the four terms.
nlohmann::json read_words(const ModelSettings& settings, const train::CompareRun& run, const std::string& data_dir) {
  const at::NoGradGuard no_grad;
  const at::Tensor ids_BT = held_out_rows(data_dir, settings.rows, settings.tokens);
  const ScoreTerms terms = first_layer_terms(*trained_model(run), ids_BT);
  return {deviation(terms.content_content), deviation(terms.content_position), deviation(terms.position_content),
          deviation(terms.position_position)};
}

Result run_word(const ModelSettings& settings, const Context& context) {
  const TrainedArms trained = trained_arms(settings, context, "word-position", read_words);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  Result result{.columns = {"seed", "word to word", "word to position", "position to word", "position to position"},
                .rows = {}};
  for (const train::CompareRun& run : runs_of(trained.runs, settings.arm)) {
    if (run.diverged_at > 0) continue;
    const std::vector<double> spreads = trained.readings.at(run.directory);
    result.rows.push_back({run.seed, spreads[0], spreads[1], spreads[2], spreads[3]});
    result.measures.push_back({"spread of the middle terms, of that of the first", settings.arm, run.seed,
                               std::max(spreads[1], spreads[2]) / spreads[0]});
  }
  add_measures(result, trained.runs);
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

// q.k / sqrt(D) of each layer, [B,H,T,T], with rotations by `positions`; the layers' inputs are those of the real ones.
std::vector<at::Tensor> layer_scores(const nn::Model& model, const at::Tensor& ids_BT, const at::Tensor& positions) {
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

// The mean score of near pairs less that of far ones, by the standard deviation of the head's scores: mean over heads.
double near_over_far(const std::vector<at::Tensor>& layers, std::array<int64_t, 2> near, std::array<int64_t, 2> far) {
  const int64_t tokens = layers.front().size(2);
  const at::Tensor positions = integers(0, tokens);
  const at::Tensor distance_TT = (positions.unsqueeze(0) - positions.unsqueeze(1)).abs();
  const auto between = [&](std::array<int64_t, 2> ends) {
    return ((distance_TT >= ends[0]).logical_and(distance_TT <= ends[1])).to(at::kDouble);
  };
  const at::Tensor near_TT = between(near), far_TT = between(far);
  double sum = 0;
  for (const at::Tensor& scores_BHTT : layers) {
    const at::Tensor mean_HTT = scores_BHTT.mean(0);
    const at::Tensor near_H = (mean_HTT * near_TT).sum({1, 2}) / near_TT.sum();
    const at::Tensor far_H = (mean_HTT * far_TT).sum({1, 2}) / far_TT.sum();
    const at::Tensor deviation_H = scores_BHTT.transpose(0, 1).flatten(1).std(1, /*unbiased=*/false);
    sum += ((near_H - far_H) / deviation_H).mean().item<double>() / static_cast<double>(layers.size());
  }
  return sum;
}

nlohmann::json read_scores(const TrainedScoreSettings& settings, const train::CompareRun& run,
                           const std::string& data_dir) {
  const at::NoGradGuard no_grad;
  const at::Tensor ids_BT = held_out_rows(data_dir, settings.rows, settings.tokens);
  const auto model = trained_model(run);
  const std::vector<at::Tensor> layers = layer_scores(*model, ids_BT, integers(0, settings.tokens));
  at::manual_seed(run.seed);
  const at::Tensor drawn = at::randperm(settings.tokens, at::kLong);
  const std::vector<at::Tensor> permuted = layer_scores(*model, ids_BT, drawn);
  nlohmann::json read = {{"near over far", near_over_far(layers, settings.near, settings.far)},
                         {"near over far, permuted", near_over_far(permuted, settings.near, settings.far)},
                         {"mean by distance", values(mean_scores(layers))}};
  for (const at::Tensor& scores_BHTT : layers) {
    const at::Tensor by_head = attention_by_offset(scores_BHTT, settings.reach);
    for (int64_t head = 0; head < by_head.size(0); ++head) read["attention"].push_back(values(by_head[head]));
  }
  return read;
}

// Mean attention of each head of each layer by distance, as read_scores has it.
HeatMap attention_map(const TrainedScoreSettings& settings, const nlohmann::json& attention, int64_t layers,
                      const std::string& name) {
  HeatMap map{name,
              "position of the key from the query",
              "mean attention",
              values(integers(-settings.reach, settings.reach + 1)),
              {},
              attention};
  const int64_t heads = std::ssize(attention) / layers;
  for (int64_t i = 0; i < std::ssize(attention); ++i) {
    map.y.push_back(fmt::format("layer {}, head {}", i / heads + 1, i % heads + 1));
  }
  return map;
}

Result run_scores(const TrainedScoreSettings& settings, const Context& context) {
  const TrainedArms trained = trained_arms(settings, context, "trained-scores", read_scores);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  const auto mean_over = [](const std::vector<double>& scores_T, std::array<int64_t, 2> ends) {
    return spread({scores_T.begin() + ends[0], scores_T.begin() + ends[1] + 1}).mean;
  };
  Result result{.columns = {"seed", "mean score, same token", "near pairs", "far pairs"}, .rows = {}};
  for (const train::CompareRun& run : runs_of(trained.runs, settings.arm)) {
    if (run.diverged_at > 0) continue;
    const nlohmann::json& read = trained.readings.at(run.directory);
    const auto add = [&](const char* arm, const char* key) {
      result.measures.push_back({"score of near pairs less far ones, of its spread", arm, run.seed, read.at(key)});
    };
    add("rope", "near over far");
    add("positions permuted", "near over far, permuted");
    const std::vector<double> scores_T = read.at("mean by distance");
    result.rows.push_back(
        {run.seed, scores_T[0], mean_over(scores_T, settings.near), mean_over(scores_T, settings.far)});
    result.series.push_back({fmt::format("mean score by distance, seed {}", run.seed),
                             values(integers(0, std::ssize(scores_T))), scores_T});
    if (!result.maps.empty()) continue;  // maps of one model are enough
    result.maps.push_back(attention_map(settings, read.at("attention"),
                                        train::parse_run_config(settings.design.run).model.num_hidden_layers,
                                        fmt::format("Attention by distance, seed {}", run.seed)));
  }
  add_measures(result, trained.runs);
  return result;
}

// RoPE with trained frequencies, and with trained logarithms of them, beside X-03's models with frozen ones and without
// an encoding.
struct FrequencySettings {
  Files files;
  Seeds seeds;
  std::string raw = "rope:trainable=true", log = "rope:trainable=log";
  std::map<std::string, Design> designs = {};
  RF_MEMBERS(FrequencySettings, files, seeds, raw, log, designs)
};

FrequencySettings frequency_settings(Scale scale) {
  const Design frozen = convergence_design(scale);
  FrequencySettings settings{.files = frozen.corpus.all_files(), .seeds = frozen.seeds};
  Design trained = frozen;
  trained.runs = "trained-frequencies";
  trained.arms = {settings.raw, settings.log};
  settings.designs = {{"frozen", frozen}, {"trained", trained}};
  return settings;
}

// The frequencies of a model with RoPE that trains them.
at::Tensor trained_frequencies_of(const nn::Model& model) {
  const auto parameters = model.named_parameters();
  const at::Tensor* raw = parameters.find("position_encoding.freqs");
  return raw != nullptr ? *raw : parameters["position_encoding.log_freqs"].exp();
}

Result run_frequencies(const FrequencySettings& settings, const Context& context) {
  const TrainedArms frozen = train_arms(context, settings.designs.at("frozen"), {"none", "rope"});
  if (frozen.signal != 0) return {.columns = {}, .rows = {}, .signal = frozen.signal};
  const WeightsReading of_model{
      .name = "trained-frequencies",
      .settings = {},
      .take = [](const train::CompareRun& run, const std::string&) -> nlohmann::json {
        const at::NoGradGuard no_grad;
        const auto model = trained_model(run);
        return {{"head size", model->config().head_dim()}, {"frequencies", values(trained_frequencies_of(*model))}};
      }};
  const TrainedArms trained = train_arms(context, settings.designs.at("trained"), {}, &of_model);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  Result result{.columns = {"encoding", "seed", "median change of a frequency, of it", "largest change",
                            "median change of its logarithm", "held-out loss"},
                .rows = {}};
  for (const std::string& arm : {settings.raw, settings.log}) {
    for (const train::CompareRun& run : runs_of(trained.runs, arm)) {
      if (run.diverged_at > 0) continue;
      const nlohmann::json& read = trained.readings.at(run.directory);
      const at::Tensor now = at::tensor(read.at("frequencies").get<std::vector<double>>(), at::kDouble);
      const at::Tensor before = frequencies(read.at("head size")).to(at::kFloat).to(at::kDouble);
      const at::Tensor change = (now - before).abs() / before;
      nlohmann::json of_logarithm = nullptr;  // raw frequencies may have crossed 0
      if ((now > 0).all().item<bool>()) {
        of_logarithm = median(values((now / before).log().abs()));
        result.measures.push_back(
            {"median change of the logarithm of a frequency", run.arm, run.seed, of_logarithm.get<double>()});
      }
      result.rows.push_back({arm, run.seed, median(values(change)), largest(change), of_logarithm, held_out_loss(run)});
      const at::Tensor pairs = integers(0, now.size(0));
      result.series.push_back({fmt::format("{}, seed {}", arm, run.seed), values(pairs), values(now)});
      if (result.series.size() == 1) result.series.push_back({"before", values(pairs), values(before)});
    }
  }
  add_measures(result, frozen.runs);
  add_measures(result, trained.runs);
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
          .budget = "1 minute, without convergence's models of learned",
          .method = {word_settings, run_word},
          .revision = 2};
}

Experiment trained_scores() {
  return {.name = "trained-scores",
          .spec = "X-02",
          .title = "Do scores decay with distance? A trained model",
          .claims = {"C-04"},
          .expected =
              "In models trained with RoPE the mean score of tokens 1 to 8 apart is above that of tokens 64 to 127 "
              "apart by more, head by head, than when the same queries and keys are rotated by permuted positions.",
          .budget = "1 minute, without convergence's models of rope",
          .method = {score_settings, run_scores},
          .revision = 2};
}

Experiment trained_frequencies() {
  return {
      .name = "trained-frequencies",
      .spec = "X-16",
      .title = "Do frequencies stay where they are when they may be trained?",
      .claims = {"C-29"},
      .expected =
          "C-29: where logarithms of frequencies are trained, the median of them changes by less than 0.05, which is "
          "5 % of a frequency. X-16: the held-out loss is that of frozen frequencies, within 0.02 nats to either "
          "side.",
      .budget =
          "34 minutes per arm and seed, 2 arms, 6 for each rate, and a run or more to choose one, without the models "
          "of convergence",
      .method = {frequency_settings, run_frequencies},
      .revision = 4,
      .hours = 2.6,
      .exceptions = {"the claim's source names no hyperparameters; they are those of convergence"},
      .shares_arms = true};
}

}  // namespace rf::reproduce
