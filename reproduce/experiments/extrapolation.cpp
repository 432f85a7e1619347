// X-06 (C-23): causal models of bytes that are trained on one length, and the same last tokens read after longer
// contexts.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <filesystem>
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

// A way to extend the context of the trained RoPE: keys of config.json for a context of `factor` times the training
// length. ReRoPE's window is half of that length.
struct Extension {
  const char* name;
  const char* directory;
  nlohmann::json (*keys)(int64_t factor, int64_t trained_on);
};

nlohmann::json scaled_rope(const char* type, int64_t factor) {
  return {{"rope_parameters", {{"rope_type", type}, {"rope_theta", 10000.0}, {"factor", factor}}}};
}

constexpr Extension kExtensions[] = {
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

  int64_t length() const { return train::parse_run_config(design.run).stages.front().max_length; }
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

// A run's model, extended to `factor` times the training length.
std::string model_for(const train::CompareRun& run, const Extension& extension, int64_t factor, int64_t trained_on) {
  const std::string directory = fmt::format("{}/{}-{}", run.directory, extension.directory, factor);
  fs::create_directories(directory);
  nlohmann::json config = io::read_json(run.directory + "/config.json");
  config.update(extension.keys(factor, trained_on));
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
Series loss_by_position(const std::string& model_dir, const at::Tensor& ids_BT, int64_t window) {
  const at::NoGradGuard no_grad;
  const auto model = nn::load_model(model_dir, Head::kCausalLm, at::kFloat);
  const int64_t rows = ids_BT.size(0), tokens = ids_BT.size(1);
  const at::Tensor logits_NV = logits_of(*model, ids_BT).slice(1, 0, tokens - 1).flatten(0, 1);
  const at::Tensor losses_N =
      at::cross_entropy_loss(logits_NV, ids_BT.slice(1, 1).flatten(), /*weight=*/{}, at::Reduction::None);
  const at::Tensor means_T = losses_N.view({rows, tokens - 1}).mean(0);
  Series series;
  for (int64_t begin = 0; begin < tokens - 1; begin += window) {
    const int64_t end = std::min(begin + window, tokens - 1);
    series.x.push_back(static_cast<double>(begin + 1 + end) / 2);
    series.y.push_back(means_T.slice(0, begin, end).mean().item<double>());
  }
  return series;
}

// What the experiment reads of a run's weights: as "last" the loss of the last tokens by arm or extension and by
// factor,
// {"rope, YaRN": {"2": ..}, ..}; as "x" and "y" the loss by position.
nlohmann::json read_lengths(const LengthSettings& settings, const train::CompareRun& run, const std::string& data_dir) {
  const std::vector<int64_t>& factors = settings.factors;
  const int64_t length = settings.length(), longest = factors.back() * length;
  const at::Tensor ids_BT = held_out_rows(data_dir, settings.rows, longest);
  nlohmann::json last;
  const auto score = [&](const std::string& name, const std::string& model_dir, int64_t factor) {
    last[name][std::to_string(factor)] = loss_of_last(model_dir, ids_BT, factor * length, settings.last);
  };
  for (size_t i = 0; i < factors.size(); ++i) {
    if (run.losses.at(i)) score(run.arm, run.directory, factors[i]);  // no loss: beyond a learned table
    if (run.arm != "rope" || factors[i] == 1) continue;
    for (const Extension& extension : kExtensions) {
      score(extension.name, model_for(run, extension, factors[i], length), factors[i]);
    }
  }
  const Series by_position =
      loss_by_position(run.directory, ids_BT.slice(1, 0, run.losses.back() ? longest : length), settings.window);
  return {{"last", last}, {"x", by_position.x}, {"y", by_position.y}};
}

Result run_length(const LengthSettings& settings, const Context& context) {
  const WeightsReading lengths{.name = "extrapolation",
                               .settings = {{"rows", settings.rows},
                                            {"window", settings.window},
                                            {"last", settings.last},
                                            {"factors", settings.factors}},
                               .take = [&](const train::CompareRun& run, const std::string& data_dir) {
                                 return read_lengths(settings, run, data_dir);
                               }};
  const TrainedArms trained = train_arms(context, settings.design, {}, &lengths);
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  const std::vector<int64_t>& factors = settings.factors;
  const int64_t length = settings.length();
  Result result{.columns = {"encoding", "times the training length", "context, tokens",
                            "loss of the last tokens, nats per token", "lowest", "highest"},
                .rows = {}};
  std::map<std::string, std::map<int64_t, std::vector<double>>> losses;  // by arm and factor: of each seed
  for (const train::CompareRun& run : trained.runs) {
    if (run.diverged_at > 0) continue;
    const nlohmann::json& read = trained.readings.at(run.directory);
    const double at_length = read.at("last").at(run.arm).at("1");
    for (const auto& [name, by_factor] : read.at("last").items()) {
      for (const auto& [factor, loss] : by_factor.items()) losses[name][std::stoll(factor)].push_back(loss);
      if (!by_factor.contains("2")) continue;
      const double at_twice = by_factor.at("2");
      result.measures.push_back({measures::kLossAtTwice, name, run.seed, at_twice - at_length});
    }
    result.series.push_back({fmt::format("{}, seed {}", run.arm, run.seed), read.at("x"), read.at("y")});
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
                         "linear-language-model"},
          .note =
              "The rows that are read here do not begin with [CLS], as rows of training do. A model without an "
              "encoding may find positions by it, so its losses in this table are not those that the precondition "
              "compares; no rule reads them.",
          .shares_arms = true};
}

}  // namespace rf::reproduce
