// every encoding of the table in a small language model of bytes, read at multiples of its training length, and
// the time of attention with it. The report puts this beside the battery of synthetic tasks on one page.
//
// Each encoding has comparisons of its own, <scale>/runs/atlas/<encoding>/<rate>, so that one that is added to the
// table does not touch the others, and processes share them by encodings.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "encoding_arms.h"
#include "experiment.h"
#include "language_model_runs.h"
#include "rf/nn/attention.h"
#include "rf/nn/encoding.h"
#include "rf/nn/seed_scope.h"
#include "shared_training.h"
#include "statistics.h"
#include "tensors.h"
#include "timing.h"

namespace rf::reproduce {

namespace {

constexpr int64_t kWidth = 128, kHeads = 4, kLayers = 2, kLength = 128;

// Of forward and backward through the terms of one layer and its attention, float32, causal, one row.
struct TimingSettings {
  std::vector<int64_t> tokens;
  int64_t rounds;
  double window_seconds;
  RF_MEMBERS(TimingSettings, tokens, rounds, window_seconds)
};

struct AtlasSettings : Trained {
  TimingSettings timing;
  RF_MEMBERS_AND(Trained, AtlasSettings, timing)
};

Corpus book_bytes(Scale scale) {
  Corpus corpus = book_corpus(scale == Scale::kPaper ? Scale::kSmall : scale);
  corpus.name = "book-bytes";
  corpus.tokens = "bytes";
  return corpus;
}

nlohmann::json run_file(Scale scale) {
  const nlohmann::json run = {
      {"objective", "causal"},
      {"model",
       {{"hidden_size", kWidth},
        {"num_hidden_layers", kLayers},
        {"num_attention_heads", kHeads},
        {"intermediate_size", 4 * kWidth},
        {"max_position_embeddings", kLength}}},
      {"schedule", {{"kind", "linear"}, {"learning_rate", 1e-3}, {"warmup_steps", by_scale(scale, 2, 100)}}},
      {"evaluate_batches", by_scale(scale, 2, 40)},
      {"log_every_steps", by_scale(scale, 2, 10)},
      {"stages",
       nlohmann::json::array(
           {{{"max_length", kLength}, {"batch", by_scale(scale, 4, 16)}, {"steps", by_scale(scale, 6, 2000)}}})}};
  return to_json(train::parse_run_config(run));
}

std::vector<std::string> atlas_arms() {
  std::vector<std::string> arms = encoding_arms(kWidth / kHeads, kLength);
  arms.insert(std::find(arms.begin(), arms.end(), "t5") + 1, kScaledT5);
  return arms;
}

AtlasSettings atlas_settings(Scale scale) {
  const Scale searched = scale == Scale::kPaper ? Scale::kSmall : scale;
  Design design{.runs = "atlas",
                .corpus = book_bytes(scale),
                .seeds = seeds_of(scale),
                .arms = atlas_arms(),
                .run = run_file(scale),
                .length_factors = {1, 2, 4, 8},
                .search = rate_search(searched, 400)};
  if (scale == Scale::kTiny) {
    design.arms = {"none", "alibi", "rope"};
    design.search.lower = 1;
    return {{design}, {.tokens = {128}, .rounds = 3, .window_seconds = 0.02}};
  }
  return {{design}, {.tokens = {256, 1024}, .rounds = 5, .window_seconds = 0.1}};
}

// A layer's encoding, its input and its projections, with gradients.
class TimedLayer {
 public:
  TimedLayer(const std::string& arm, int64_t tokens) : positions_(nn::make_positions(integers(0, tokens))) {
    const nn::SeedScope drawn(1);
    encoding_ = nn::make_encoding(train::parse_arm(arm), {.layers = 1,
                                                          .heads = kHeads,
                                                          .head_dim = kWidth / kHeads,
                                                          .hidden_size = kWidth,
                                                          .input_size = kWidth,
                                                          .max_position_embeddings = tokens,
                                                          .causal = true,
                                                          .vocab_size = 1});
    const auto draw = [](at::IntArrayRef sizes, double scale) {
      return (at::randn(sizes) * scale).requires_grad_(true);
    };
    for (at::Tensor* x : {&query_, &key_, &value_}) *x = draw({1, tokens, kHeads, kWidth / kHeads}, 1);
    hidden_BTC_ = draw({1, tokens, kWidth}, 1);
    for (at::Tensor* w : {&projections_.query_weight, &projections_.key_weight, &projections_.value_weight}) {
      *w = draw({kWidth, kWidth}, 0.05);
    }
    for (at::Tensor* b : {&projections_.query_bias, &projections_.key_bias, &projections_.value_bias}) {
      *b = draw({kWidth}, 0.05);
    }
  }

  void forward_and_backward() {
    nn::Projections projections = projections_;
    if (encoding_->numbers_per_token() > 0) projections.token_numbers_BSN = encoding_->token_numbers(0, hidden_BTC_);
    if (encoding_->reads_vectors()) {
      projections.query_BTHD = query_;
      projections.key_BSHD = key_;
    }
    const nn::Terms terms = encoding_->terms(0, encoding_->shared(positions_, at::kFloat), projections);
    const nn::AttentionContext causal(positions_, /*attend=*/{}, {.left = -1, .right = 0});
    nn::attention(query_, key_, value_, terms, causal).sum().backward();
  }

 private:
  nn::Positions positions_;
  std::shared_ptr<nn::Encoding> encoding_;
  at::Tensor query_, key_, value_, hidden_BTC_;
  nn::Projections projections_;
};

// The time with an encoding, of that with rope.
double relative_time(const std::string& arm, int64_t tokens, const TimingSettings& timing) {
  TimedLayer layer(arm, tokens), reference("rope", tokens);
  const std::vector<double> seconds =
      median_seconds({[&] { layer.forward_and_backward(); }, [&] { reference.forward_and_backward(); }}, timing.rounds,
                     timing.window_seconds);
  return seconds[0] / seconds[1];
}

std::string time_column(int64_t tokens) {
  return fmt::format("time of attention at {} tokens, of rope's", tokens);
}

struct AtlasArm {
  std::vector<train::CompareRun> runs;
  double rate = 0;
  int signal = 0;
};

// Mean and interval, null where there is no value.
std::array<nlohmann::json, 3> estimate_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  const Estimate found = estimate(values, kConfidence);
  return {found.mean, found.low, found.high};
}

AtlasArm train_atlas_arm(const Context& context, Design design, const std::string& text) {
  design.runs = "atlas/" + name_of_arm(text);
  design.arms = {text};
  TrainedArms trained = train_arms(context, design);
  if (trained.signal != 0) return {.runs = {}, .signal = trained.signal};
  return {.runs = std::move(trained.runs), .rate = context.log.rates.back().chosen()};
}

Result run_atlas(const AtlasSettings& settings, const Context& context) {
  const Design& design = settings.design;
  const int64_t length = train::parse_run_config(design.run).stages.front().max_length;
  Result result{.columns = {"encoding", "parameters", "learning rate"}, .rows = {}};
  std::vector<std::string> loss_names;
  for (const int64_t factor : design.length_factors) {
    loss_names.push_back(fmt::format("loss at {} tokens, nats per token", factor * length));
    result.columns.push_back(loss_names.back());
  }
  result.columns.push_back(fmt::format("loss at {} tokens less rope's, nats per token", length));
  result.columns.push_back("from, 95 %");
  result.columns.push_back("to, 95 %");
  result.columns.push_back("peak MiB");
  result.columns.push_back("diverged runs");
  for (const int64_t tokens : settings.timing.tokens) result.columns.push_back(time_column(tokens));
  const auto trained = train_shared(context, "atlas", design.arms, [&](const Context& of_arm, const std::string& text) {
    return train_atlas_arm(of_arm, design, text);
  });
  if (trained.signal != 0) return {.columns = {}, .rows = {}, .signal = trained.signal};
  for (size_t k = 0; k < design.arms.size(); ++k) {
    for (const train::CompareRun& run : trained.arms[k].runs) {
      for (size_t i = 0; i < loss_names.size(); ++i) {
        if (!run.losses.at(i)) continue;  // beyond a learned table, or diverged
        result.measures.push_back({loss_names[i], name_of_arm(design.arms[k]), run.seed, *run.losses[i]});
      }
    }
  }
  const Evidence measured{.measures = result.measures, .rates = {}};
  for (size_t k = 0; k < design.arms.size(); ++k) {
    const std::string arm = name_of_arm(design.arms[k]);
    const AtlasArm& own = trained.arms[k];
    std::vector<double> peaks;
    std::vector<std::vector<double>> losses(loss_names.size());
    for (const train::CompareRun& run : own.runs) {
      peaks.push_back(static_cast<double>(run.peak_bytes) / (1 << 20));
      for (size_t i = 0; i < losses.size(); ++i) {
        if (run.losses[i]) losses[i].push_back(*run.losses[i]);
      }
    }
    nlohmann::json row = {arm, own.runs.front().parameters, own.rate};
    for (const std::vector<double>& of_seeds : losses) {
      row.push_back(of_seeds.empty() ? nlohmann::json() : nlohmann::json(spread(of_seeds).mean));
    }
    for (const nlohmann::json& value : estimate_of(measured.differences(loss_names.front(), arm, "rope"))) {
      row.push_back(value);
    }
    row.push_back(spread(peaks).high);
    row.push_back(std::count_if(own.runs.begin(), own.runs.end(),
                                [](const train::CompareRun& run) { return run.diverged_at > 0; }));
    result.rows.push_back(row);
  }
  share(context, "atlas", {"timing"}, [&](size_t) {  // processes do not disturb each other's
    for (size_t k = 0; k < design.arms.size(); ++k) {
      for (const int64_t tokens : settings.timing.tokens) {
        result.rows[k].push_back(relative_time(design.arms[k], tokens, settings.timing));
      }
    }
    return 0;
  });
  return result;
}

}  // namespace

Experiment atlas() {
  return {.name = "atlas",
          .spec = "X-19",
          .title = "The atlas of position encodings",
          .claims = {},
          .expected =
              "Nothing is expected: of every encoding, the loss of a small language model of bytes at its training "
              "length and at 2, 4 and 8 times it, the time of attention relative to RoPE's, and the peak memory of "
              "training.",
          .budget =
              "2 minutes per encoding of the table (t5 twice) and seed, half a minute for each rate, and a run or more "
              "to choose one",
          .method = {atlas_settings, run_atlas},
          .hours = 5.0,
          .exceptions = {"no publication compares these encodings: scale paper is scale small"},
          .shares_arms = true};
}

}  // namespace rf::reproduce
