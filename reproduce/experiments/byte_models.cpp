// Causal language models of bytes:
//
//   linear-language-model  X-04, C-18, C-08  linear attention with and without RoPE (the paper's Figure 3, right)
//   extrapolation          X-06, C-23, C-03  models trained on one length, the same last tokens read after longer
//                         contexts
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
nlohmann::json byte_run(Scale scale, const nlohmann::json& encoding, const nlohmann::json& attention, Length small,
                        int64_t small_steps) {
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
  run["stages"] = nlohmann::json::array({{{"max_length", length},
                                          {"batch", batch},
                                          {"steps", published ? 100000 : by_scale(scale, int64_t{8}, small_steps)}}});
  run["log_every_steps"] = published ? 100 : by_scale(scale, 2, 10);
  return to_json(train::parse_run_config(run));
}

struct LinearSettings : Trained {
  int64_t rows, tokens;
  RF_MEMBERS_AND(Trained, LinearSettings, rows, tokens)
};

LinearSettings linear_settings(Scale scale) {
  const Length length{256, 16};
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
  const TrainedArms trained = train_arms(context, design);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  const Curves curves = loss_curves(trained.runs);
  const Losses held_out = held_out_losses(trained.runs);
  Result result{.columns = {"model", "late training loss", "lowest", "highest", "held-out bits per byte", "lowest",
                            "highest", "smallest denominator by keys"},
                .rows = {}};
  const at::Tensor ids_BT = held_out_rows(trained.data_dir, settings.rows, settings.tokens);
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
    if (arm == "rope") {
      std::vector<double> smallest;
      for (const train::CompareRun& each : runs_of(trained.runs, arm)) {
        if (each.diverged_at > 0) continue;
        smallest.push_back(smallest_mean_weight(each.directory, ids_BT));
      }
      if (!smallest.empty()) denominator = spread(smallest).low;
    }
    result.rows.push_back(
        {arm, training.mean, training.low, training.high, valid.mean, valid.low, valid.high, denominator});
  }
  add_measures(result, trained.runs);
  add_steps(result, trained.runs, "rope", "learned", measures::kStepsOfLearned);
  return result;
}

// A way in which the trained RoPE reads longer texts: keys of config.json for a context of `factor` times the training
// length. ReRoPE's window is half of that length.
struct Reading {
  const char* name;
  const char* directory;
  nlohmann::json (*keys)(int64_t factor, int64_t trained_on);
};

nlohmann::json scaled_rope(const char* type, int64_t factor) {
  return {{"rope_parameters", {{"rope_type", type}, {"rope_theta", 10000.0}, {"factor", factor}}}};
}

constexpr Reading kReadings[] = {
    {"rope, interpolated", "linear", [](int64_t factor, int64_t) { return scaled_rope("linear", factor); }},
    {"rope, NTK", "ntk", [](int64_t factor, int64_t) { return scaled_rope("ntk", factor); }},
    {"rope, YaRN", "yarn",
     [](int64_t factor, int64_t trained_on) {
       nlohmann::json keys = scaled_rope("yarn", factor);
       keys["rope_parameters"]["original_max_position_embeddings"] = trained_on;
       return keys;
     }},
    {"rope, ReRoPE", "rerope",
     [](int64_t, int64_t trained_on) {
       return nlohmann::json{{"position_encoding", {{"type", "rerope"}, {"window", trained_on / 2}}}};
     }},
};

struct LengthSettings : Trained {
  int64_t rows;         // of the loss by position
  int64_t window = 32;  // positions over which a point of it is the mean
  int64_t last = 64;    // the tokens at the end of a row that are scored after every context
  std::vector<int64_t> factors = {1, 2, 4, 8};
  RF_MEMBERS_AND(Trained, LengthSettings, rows, window, last, factors)
};

LengthSettings length_settings(Scale scale) {
  nlohmann::json run = byte_run(scale, "rope", "softmax", {128, 32}, 2000);
  run["evaluate_batches"] = 0;  // all
  return {{{.runs = "extrapolation",
            .corpus = byte_corpus(scale),
            .seeds = seeds_of(scale),
            .arms = {"none", "learned", "alibi", "xpos", "rope"},
            .run = run,
            .length_factors = {1, 2, 4, 8},
            .search = rate_search(scale, 500)}},
          by_scale(scale, 2, 128)};
}

// A run's model that reads texts of `factor` times the training length so.
std::string model_for(const train::CompareRun& run, const Reading& reading, int64_t factor, int64_t trained_on) {
  const std::string directory = fmt::format("{}/{}-{}", run.directory, reading.directory, factor);
  fs::create_directories(directory);
  nlohmann::json config = io::read_json(run.directory + "/config.json");
  config.update(reading.keys(factor, trained_on));
  config.erase("model_type");  // transformers' RoFormer has none of them
  config.erase("architectures");
  config.erase("rotary_value");
  io::write_file(directory + "/config.json", config.dump(2) + "\n");
  for (const fs::directory_entry& entry : fs::directory_iterator(run.directory)) {
    const fs::path to = fs::path(directory) / entry.path().filename();
    if (entry.is_regular_file() && !fs::exists(to)) fs::copy_file(entry.path(), to);
  }
  return directory;
}

// Logits of rows, all at once: [B,T] -> [B,T,V].
at::Tensor logits_of(nn::Model& model, const at::Tensor& ids_BT) {
  nn::Input input;
  input.ids_BT = ids_BT;
  return model.forward(input).logits;
}

// The loss of the last tokens of every row when the model reads `context` tokens up to its end: the same tokens are
// scored for every context.
double loss_of_last(const std::string& model_dir, const at::Tensor& ids_BT, int64_t context, int64_t last) {
  const at::NoGradGuard no_grad;
  const auto model = nn::load_model(model_dir, Head::kCausalLm, at::kFloat);
  const int64_t tokens = ids_BT.size(1);
  double sum = 0;
  for (const at::Tensor& row_BT : ids_BT.slice(1, tokens - context, tokens).split(8)) {
    const at::Tensor logits_NV = logits_of(*model, row_BT).slice(1, context - last - 1, context - 1).flatten(0, 1);
    const at::Tensor targets_N = row_BT.slice(1, context - last, context).flatten();
    sum +=
        at::cross_entropy_loss(logits_NV.to(at::kDouble), targets_N, /*weight=*/{}, at::Reduction::Sum).item<double>();
  }
  return sum / static_cast<double>(ids_BT.size(0) * last);
}

// The loss of a token by its position in the row, mean over rows and over windows of positions.
Series loss_by_position(const std::string& name, const std::string& model_dir, const at::Tensor& ids_BT,
                        int64_t window) {
  const at::NoGradGuard no_grad;
  const auto model = nn::load_model(model_dir, Head::kCausalLm, at::kFloat);
  const int64_t rows = ids_BT.size(0), tokens = ids_BT.size(1);
  const at::Tensor logits_NV = logits_of(*model, ids_BT).slice(1, 0, tokens - 1).flatten(0, 1);
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
  const std::vector<int64_t>& factors = settings.factors;
  const int64_t length = train::parse_run_config(design.run).stages.front().max_length;
  const int64_t longest = factors.back() * length;
  Result result{.columns = {"encoding", "times the training length", "context, tokens",
                            "loss of the last tokens, nats per token", "lowest", "highest"},
                .rows = {}};
  const at::Tensor ids_BT = held_out_rows(trained.data_dir, settings.rows, longest);
  std::map<std::string, std::map<int64_t, std::vector<double>>> losses;  // by arm and factor: of each seed
  const auto score = [&](const std::string& arm, const std::string& model_dir, int64_t factor) {
    const double loss = loss_of_last(model_dir, ids_BT, factor * length, settings.last);
    losses[arm][factor].push_back(loss);
    return loss;
  };
  for (const train::CompareRun& run : trained.runs) {
    if (run.diverged_at > 0) continue;
    double at_length = 0;
    for (size_t i = 0; i < factors.size(); ++i) {
      if (!run.losses.at(i)) continue;  // beyond a learned table
      const double loss = score(run.arm, run.directory, factors[i]);
      if (factors[i] == 1) at_length = loss;
      if (factors[i] == 2) result.measures.push_back({measures::kLossAtTwice, run.arm, run.seed, loss - at_length});
    }
    result.series.push_back(loss_by_position(fmt::format("{}, seed {}", run.arm, run.seed), run.directory,
                                             ids_BT.slice(1, 0, run.losses.back() ? longest : length),
                                             settings.window));
    if (run.arm != "rope") continue;
    for (const Reading& reading : kReadings) {
      for (const int64_t factor : factors) {
        if (factor == 1) continue;
        const double loss = score(reading.name, model_for(run, reading, factor, length), factor);
        if (factor == 2) {
          result.measures.push_back({measures::kLossAtTwice, reading.name, run.seed, loss - at_length});
        }
      }
    }
  }
  for (const auto& [arm, by_factor] : losses) {
    for (const int64_t factor : factors) {
      if (!by_factor.contains(factor)) {
        if (factor > 1) result.rows.push_back({arm, factor, factor * length, nullptr, nullptr, nullptr});
        continue;
      }
      const Spread found = spread(by_factor.at(factor));
      result.rows.push_back({arm, factor, factor * length, found.mean, found.low, found.high});
    }
  }
  add_measures(result, trained.runs);
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
      .exceptions = {
          "norms after the blocks, biases and a tied output, where the published code has norms before them, "
          "no biases and an output of its own",
          "the 266 random features are drawn once, where the published code draws anew every 1,000 steps",
          "a constant learning rate without warm-up: the paper names none", "100,000 steps, the axis of Figure 3"}};
}

Experiment extrapolation() {
  return {.name = "extrapolation",
          .spec = "X-06",
          .title = "Does RoPE read texts longer than those it was trained on?",
          .claims = {"C-23"},
          .expected =
              "C-23: RoPE's loss of the same last tokens is, with a context of twice the training length, at most 0.02 "
              "nats above that with the training length.",
          .budget = "7 minutes per arm and seed, 5 arms, 2 minutes for each rate, and a run or more to choose one",
          .method = {length_settings, run_length},
          .revision = 4,
          .hours = 1.6,
          .exceptions = {"the claim's source names no hyperparameters; the body and the schedule are those of "
                         "linear-language-model"}};
}

}  // namespace rf::reproduce
