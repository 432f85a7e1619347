// Causal language models of bytes:
//
//   linear-language-model  X-04, C-18, C-08  linear attention with and without RoPE (the paper's Figure 3, right)
//   extrapolation          X-06, C-23, C-03  models trained on one length, read at its multiples
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "experiment.h"
#include "language_model_runs.h"
#include "layer_parts.h"
#include "rf/io/files.h"
#include "rf/train/pretrain.h"
#include "statistics.h"

namespace rf::reproduce {

namespace {

namespace fs = std::filesystem;

constexpr const char* kInterpolated = "rope, positions interpolated";

Corpus byte_corpus(Scale scale) {
  return {.name = "bytes",
          .files = {scale == Scale::kPaper ? "enwik8/enwik8.txt" : "enwiki_xml/enwiki_head.xml"},
          .tokens = "bytes",
          .valid_fraction = 0.05,
          .documents = "blank-line"};
}

struct Length {
  int64_t tokens, batch;
};

// A run file; attention and encoding as config.json has them. kPaper: R-CFG-4.
nlohmann::json byte_run(Scale scale, const nlohmann::json& encoding, const nlohmann::json& attention, Length small) {
  const bool published = scale == Scale::kPaper;
  const int64_t width = published ? 768 : 128;
  const int64_t length = published ? 1024 : small.tokens, batch = published ? 128 : small.batch;
  nlohmann::json run = {
      {"objective", "causal"},
      {"model",
       {{"hidden_size", width},
        {"num_hidden_layers", published ? 12 : 4},
        {"num_attention_heads", published ? 12 : 4},
        {"intermediate_size", 4 * width},
        {"max_position_embeddings", length},
        {"position_encoding", encoding},
        {"attention", attention}}},
      {"schedule",
       {{"kind", "constant"}, {"learning_rate", published ? 1e-4 : 1e-3}, {"warmup_steps", by_scale(scale, 2, 100)}}},
      {"evaluate_batches", by_scale(scale, 2, 40)}};
  run["stages"] = nlohmann::json::array(
      {{{"max_length", length}, {"batch", batch}, {"steps", published ? 100000 : by_scale(scale, 8, 600)}}});
  run["log_every_steps"] = published ? 100 : by_scale(scale, 2, 10);
  return to_json(train::parse_run_config(run));
}

struct LinearSettings : Trained {
  int64_t rows, tokens;
  RF_MEMBERS_AND(Trained, LinearSettings, rows, tokens)
};

LinearSettings linear_settings(Scale scale) {
  const int64_t features = scale == Scale::kPaper ? 266 : 64;
  const nlohmann::json favor = {{"type", "linear"}, {"feature_map", "favor"}, {"num_features", features}};
  nlohmann::json before = favor;
  before["rope_site"] = "before_map";
  const Length length{256, 16};
  const nlohmann::json both = nlohmann::json::array({"sinusoidal", "rope"});
  const nlohmann::json elu = {{"type", "linear"}, {"feature_map", "elu"}};
  const Design design = {.runs = "linear-language-model",
                         .corpus = byte_corpus(scale),
                         .seeds = seeds_of(scale),
                         .run_files = {{"none", byte_run(scale, "none", favor, length)},
                                       {"learned", byte_run(scale, "learned", favor, length)},
                                       {"eq19-elu", byte_run(scale, "rope", elu, length)},
                                       {"eq19-favor", byte_run(scale, "rope", favor, length)},
                                       {"before-map", byte_run(scale, both, before, length)},
                                       {"softmax-rope", byte_run(scale, "rope", "softmax", length)}}};
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
  const TrainedArms trained = train_run_files(context, design);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  const Curves curves = loss_curves(trained.runs);
  const Losses held_out = held_out_losses(trained.runs);
  Result result{.columns = {"model", "late training loss", "lowest", "highest", "held-out bits per byte", "lowest",
                            "highest", "smallest denominator by keys"},
                .rows = {}};
  const at::Tensor ids_BT = held_out_rows(trained.data_dir, settings.rows, settings.tokens);
  double lowest = std::numeric_limits<double>::infinity();
  for (const auto& [arm, of_seeds] : curves) {
    std::vector<double> late, bits;
    for (const Curve& curve : of_seeds) {
      late.push_back(late_mean(curve));
      result.series.push_back(
          {fmt::format("{}, seed {}", arm, design.seeds[late.size() - 1]), curve.steps, curve.losses});
    }
    for (const double loss : held_out.at(arm)) bits.push_back(loss / std::log(2.0));
    const Spread training = spread(late), valid = spread(bits);
    nlohmann::json denominator;  // null but for Eq. 19's
    if (arm.starts_with("eq19")) {
      std::vector<double> smallest;
      for (const train::CompareRun& each : runs_of(trained.runs, arm)) {
        smallest.push_back(smallest_mean_weight(each.directory, ids_BT));
      }
      denominator = spread(smallest).low;
      lowest = std::min(lowest, spread(smallest).low);
    }
    result.rows.push_back(
        {arm, training.mean, training.low, training.high, valid.mean, valid.low, valid.high, denominator});
  }
  const Judgement faster = lower_late_loss(curves, {"eq19-favor", "before-map"}, "learned");
  const Judgement useful = lower_late_loss(curves, {"eq19-favor"}, "none");
  result.findings = {{"C-18", faster.holds, faster.figures},
                     {"C-08", useful.holds && lowest > 0,
                      fmt::format("{}; smallest denominator of the trained models, by the number of keys: {:.3g}",
                                  useful.figures, lowest)}};
  return result;
}

struct LengthSettings : Trained {
  int64_t rows;         // of the loss by position
  int64_t window = 32;  // positions over which a point of it is the mean
  std::string interpolated = "rope";
  double bound = 0.02;
  RF_MEMBERS_AND(Trained, LengthSettings, rows, window, interpolated, bound)
};

LengthSettings length_settings(Scale scale) {
  nlohmann::json run = byte_run(scale, "rope", "softmax", {128, 32});
  run["evaluate_batches"] = 0;  // all, as for the interpolated models
  return {{{.runs = "extrapolation",
            .corpus = byte_corpus(scale),
            .seeds = seeds_of(scale),
            .arms = {"learned", "sinusoidal", "t5", "rope"},
            .run = run,
            .length_factors = {1, 2, 4, 8}}},
          by_scale(scale, 2, 32)};
}

// A run's model whose positions are divided by `factor`.
std::string interpolated_model(const train::CompareRun& run, int64_t factor) {
  const std::string directory = fmt::format("{}/interpolated-{}", run.directory, factor);
  fs::create_directories(directory);
  nlohmann::json config = io::read_json(run.directory + "/config.json");
  config["rope_parameters"] = {{"rope_type", "linear"}, {"rope_theta", 10000.0}, {"factor", factor}};
  config.erase("model_type");  // transformers' RoFormer has no scalings
  config.erase("architectures");
  config.erase("rotary_value");
  io::write_file(directory + "/config.json", config.dump(2) + "\n");
  for (const fs::directory_entry& entry : fs::directory_iterator(run.directory)) {
    const fs::path to = fs::path(directory) / entry.path().filename();
    if (entry.is_regular_file() && !fs::exists(to)) fs::copy_file(entry.path(), to);
  }
  return directory;
}

// Held-out loss at `factor` times the training length.
double held_out_loss(const train::RunConfig& trained, const std::string& model_dir, const std::string& data_dir,
                     int64_t factor, io::Progress& progress) {
  const train::Stage& stage = trained.stages.front();
  const int64_t length = factor * stage.max_length;
  train::EvaluateOptions options;
  options.model_dir = model_dir;
  options.data_dir = data_dir;
  options.max_length = length;
  options.batch_size = std::max<int64_t>(stage.max_length * stage.batch / length, 1);
  options.precision = trained.precision;
  return train::evaluate(options, progress).loss;
}

// The loss of a token by its position in the row, mean over rows and over windows of positions.
Series loss_by_position(const std::string& name, const std::string& model_dir, const at::Tensor& ids_BT,
                        int64_t window) {
  const at::NoGradGuard no_grad;
  const auto model = nn::load_model(model_dir, Head::kCausalLm, at::kFloat);
  const int64_t rows = ids_BT.size(0), tokens = ids_BT.size(1);
  nn::Input input;
  input.ids_BT = ids_BT;
  const at::Tensor logits_NV = model->forward(input).logits.slice(1, 0, tokens - 1).flatten(0, 1);
  const at::Tensor losses_N =
      at::cross_entropy_loss(logits_NV, ids_BT.slice(1, 1).flatten(), /*weight=*/{}, at::Reduction::None);
  const at::Tensor means_T = losses_N.view({rows, tokens - 1}).mean(0);
  Series series{name, {}, {}};
  for (int64_t begin = 0; begin < tokens - 1; begin += window) {
    const int64_t end = std::min(begin + window, tokens - 1);
    series.x.push_back(static_cast<double>(begin + 1 + end) / 2);
    series.y.push_back(means_T.slice(0, begin, end).mean().item<double>());
  }
  return series;
}

Result run_length(const LengthSettings& settings, const Context& context) {
  const Design& design = settings.design;
  const TrainedArms trained = train_arms(context, design);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  const std::vector<int64_t>& factors = design.length_factors;
  const train::RunConfig run_file = train::parse_run_config(design.run);
  const int64_t length = run_file.stages.front().max_length;
  Result result{.columns = {"encoding", "times the training length", "tokens", "held-out loss", "lowest", "highest"},
                .rows = {}};
  const auto add = [&](const std::string& name, size_t i, const std::vector<double>& losses) {
    const int64_t tokens = factors[i] * length;
    if (losses.empty()) {
      result.rows.push_back({name, factors[i], tokens, nullptr, nullptr, nullptr});
    } else {
      const Spread found = spread(losses);
      result.rows.push_back({name, factors[i], tokens, found.mean, found.low, found.high});
    }
  };
  std::map<std::string, std::vector<std::vector<double>>> losses;  // by arm and factor: of each seed that reads so far
  for (const std::string& arm : design.arms) {
    for (size_t i = 0; i < factors.size(); ++i) {
      std::vector<double> of_seeds;
      for (const train::CompareRun& run : runs_of(trained.runs, arm)) {
        if (run.losses.at(i)) of_seeds.push_back(*run.losses.at(i));
      }
      add(arm, i, of_seeds);
      losses[arm].push_back(of_seeds);
    }
  }
  for (size_t i = 1; i < factors.size(); ++i) {
    std::vector<double> of_seeds;
    for (const train::CompareRun& run : runs_of(trained.runs, settings.interpolated)) {
      const std::string model_dir = interpolated_model(run, factors[i]);
      of_seeds.push_back(held_out_loss(run_file, model_dir, trained.data_dir, factors[i], context.progress));
    }
    add(kInterpolated, i, of_seeds);
  }
  const at::Tensor ids_BT = held_out_rows(trained.data_dir, settings.rows, factors.back() * length);
  for (const train::CompareRun& run : trained.runs) {
    const auto draw = [&](const std::string& name, const std::string& model_dir, int64_t tokens) {
      result.series.push_back(loss_by_position(fmt::format("{}, seed {}", name, run.seed), model_dir,
                                               ids_BT.slice(1, 0, tokens), settings.window));
    };
    draw(run.arm, run.directory, run.losses.back() ? factors.back() * length : length);
    if (run.arm != settings.interpolated) continue;
    draw(kInterpolated, interpolated_model(run, factors.back()), factors.back() * length);
  }
  const Judgement reads = reads_further(losses.at("rope")[0], losses.at("rope")[1], settings.bound);
  const bool rope_runs = !losses.at("rope").back().empty(), learned_ends = losses.at("learned")[1].empty();
  result.findings = {{"C-23", reads.holds, reads.figures},
                     {"C-03", rope_runs && learned_ends,
                      fmt::format("rope reads {} tokens after training on {}; a learned table {}",
                                  factors.back() * length, length, learned_ends ? "ends there" : "goes on")}};
  return result;
}

}  // namespace

Experiment linear_language_model() {
  return {.name = "linear-language-model",
          .spec = "X-04",
          .title = "Does linear attention learn faster with RoPE? (Figure 3, right)",
          .claims = {"C-18", "C-08"},
          .expected =
              "C-18: with every seed Performer's features with rotations after the map (Eq. 19), and sinusoids "
              "with rotations before it, have a lower mean training loss over the last two thirds of the "
              "steps than with a learned table. C-08: Eq. 19 trains to finite losses, lower than without "
              "positions, and its denominators stay positive.",
          .budget = "7 minutes per arm and seed, 6 arms",
          .method = {linear_settings, run_linear}};
}

Experiment extrapolation() {
  return {.name = "extrapolation",
          .spec = "X-06",
          .title = "Does RoPE read texts longer than those it was trained on?",
          .claims = {"C-23", "C-03"},
          .expected =
              "C-23: with every seed the held-out loss at twice the training length is at most 0.02 nats above "
              "that at the training length. C-03: RoPE reads eight times the training length, a learned table "
              "not twice.",
          .budget = "5 minutes per arm and seed, 4 arms",
          .method = {length_settings, run_length}};
}

}  // namespace rf::reproduce
